//! The two compute formats, as what vectors are read from and written to.

use half::bf16;

use super::{MAX_LANES, Simd};

/// f32 or bf16.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// The nearest number of this format, ties to even.
    fn from_f32(value: f32) -> Self;

    /// The number as f32, exactly.
    fn to_f32(self) -> f32;

    /// The same numbers, if this is f32.
    fn as_f32(numbers: &[Self]) -> Option<&[f32]>;

    /// Reads a vector.
    ///
    /// # Safety
    /// `LANES` numbers can be read from `from`.
    unsafe fn load_from<S: Simd>(simd: S, from: *const Self) -> S::V;

    /// Reads `count <= LANES` numbers; the other lanes are zero.
    ///
    /// # Safety
    /// `count` numbers can be read from `from`.
    unsafe fn load_partial_from<S: Simd>(simd: S, from: *const Self, count: usize) -> S::V;

    /// Writes a vector, rounded to nearest even.
    ///
    /// # Safety
    /// `LANES` numbers can be written to `to`.
    unsafe fn store_to<S: Simd>(simd: S, to: *mut Self, a: S::V);

    /// Writes the first `count <= LANES` lanes, rounded to nearest even.
    ///
    /// # Safety
    /// `count` numbers can be written to `to`.
    unsafe fn store_partial_to<S: Simd>(simd: S, to: *mut Self, count: usize, a: S::V);

    /// Reads a vector from the start of `from`; lanes beyond its end are zero.
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[Self]) -> S::V {
        if from.len() >= S::LANES {
            // SAFETY: the slice has that many numbers.
            unsafe { Self::load_from(simd, from.as_ptr()) }
        } else {
            // SAFETY: the slice has that many numbers.
            unsafe { Self::load_partial_from(simd, from.as_ptr(), from.len()) }
        }
    }

    /// Writes a vector to the start of `to`; lanes beyond its end are dropped.
    #[inline(always)]
    fn store<S: Simd>(simd: S, to: &mut [Self], a: S::V) {
        if to.len() >= S::LANES {
            // SAFETY: the slice has that many numbers.
            unsafe { Self::store_to(simd, to.as_mut_ptr(), a) }
        } else {
            // SAFETY: the slice has that many numbers.
            unsafe { Self::store_partial_to(simd, to.as_mut_ptr(), to.len(), a) }
        }
    }
}

impl Element for f32 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn as_f32(numbers: &[Self]) -> Option<&[f32]> {
        Some(numbers)
    }

    #[inline(always)]
    unsafe fn load_from<S: Simd>(simd: S, from: *const Self) -> S::V {
        // SAFETY: the caller's promise is the same.
        unsafe { simd.load(from) }
    }

    #[inline(always)]
    unsafe fn load_partial_from<S: Simd>(simd: S, from: *const Self, count: usize) -> S::V {
        // SAFETY: the caller's promise is the same.
        unsafe { simd.load_partial(from, count) }
    }

    #[inline(always)]
    unsafe fn store_to<S: Simd>(simd: S, to: *mut Self, a: S::V) {
        // SAFETY: the caller's promise is the same.
        unsafe { simd.store(to, a) }
    }

    #[inline(always)]
    unsafe fn store_partial_to<S: Simd>(simd: S, to: *mut Self, count: usize, a: S::V) {
        // SAFETY: the caller's promise is the same.
        unsafe { simd.store_partial(to, count, a) }
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn as_f32(_: &[Self]) -> Option<&[f32]> {
        None
    }

    #[inline(always)]
    unsafe fn load_from<S: Simd>(simd: S, from: *const Self) -> S::V {
        // SAFETY: the caller's promise is the same; a bf16 is stored as its 16 bits.
        unsafe { simd.load_bf16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_partial_from<S: Simd>(simd: S, from: *const Self, count: usize) -> S::V {
        let mut lanes = [0u16; MAX_LANES];
        let count = count.min(MAX_LANES);
        // SAFETY: the caller promises `count` numbers, and `lanes` has room for them.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u16>(), lanes.as_mut_ptr(), count) };
        // SAFETY: `lanes` has at least `LANES` numbers.
        unsafe { simd.load_bf16(lanes.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store_to<S: Simd>(simd: S, to: *mut Self, a: S::V) {
        // SAFETY: the caller's promise is the same; a bf16 is stored as its 16 bits.
        unsafe { simd.store_bf16(to.cast(), a) }
    }

    #[inline(always)]
    unsafe fn store_partial_to<S: Simd>(simd: S, to: *mut Self, count: usize, a: S::V) {
        let mut lanes = [0u16; MAX_LANES];
        let count = count.min(MAX_LANES);
        // SAFETY: `lanes` has at least `LANES` numbers.
        unsafe { simd.store_bf16(lanes.as_mut_ptr(), a) };
        // SAFETY: the caller promises room for `count` numbers, and `lanes` has them.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), to.cast::<u16>(), count) };
    }
}

//! AVX2 with FMA and F16C: 8 lanes.

use std::arch::x86_64::*;

use super::{Simd, WithSimd};

/// A CPU that has AVX2, FMA and F16C. Made only by [`Avx2::run`].
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Whether this CPU has the instructions.
    #[inline]
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
    }

    /// Runs `kernel`, compiled with the instructions.
    ///
    /// # Safety
    /// [`is_available`](Self::is_available).
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(crate) unsafe fn run<K: WithSimd>(kernel: K) -> K::Output {
        kernel.run(Self(()))
    }
}

/// An expression of intrinsics on registers.
macro_rules! registers {
    ($value:expr) => {{
        // SAFETY: an `Avx2` exists only where the CPU has the instructions; they touch no memory.
        unsafe { $value }
    }};
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        registers!(_mm256_set1_ps(value))
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        registers!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        registers!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        registers!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        registers!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        registers!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        registers!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn select_less(self, a: __m256, b: __m256, then: __m256, otherwise: __m256) -> __m256 {
        registers!(_mm256_blendv_ps(otherwise, then, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)))
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        registers!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn exp2_integral(self, a: __m256) -> __m256 {
        registers!({
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the CPU has the instruction, and the caller promises 8 readable numbers.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> __m256 {
        // SAFETY: the CPU has the instruction, and the mask selects the `count` numbers that the caller promises.
        unsafe { _mm256_maskload_ps(from, self.mask(count)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: __m256) {
        // SAFETY: the CPU has the instruction, and the caller promises room for 8 numbers.
        unsafe { _mm256_storeu_ps(to, a) };
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, count: usize, a: __m256) {
        // SAFETY: the CPU has the instruction, and the mask selects the `count` numbers that the caller promises.
        unsafe { _mm256_maskstore_ps(to, self.mask(count), a) };
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m256 {
        // SAFETY: the CPU has the instruction, and the caller promises 8 readable numbers.
        let bits = unsafe { _mm_loadu_si128(from.cast()) };
        registers!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits))))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, a: __m256) {
        let halves = registers!({
            let bits = _mm256_castps_si256(a);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
            // A NaN is cut, not rounded, and made quiet, so that its mantissa doesn't become zero.
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
            let upper = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, is_nan));
            let packed = _mm256_packus_epi32(upper, upper);
            _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
        });
        // SAFETY: the CPU has the instruction, and the caller promises room for 8 numbers.
        unsafe { _mm_storeu_si128(to.cast(), halves) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m256 {
        // SAFETY: the CPU has the instruction, and the caller promises 8 readable numbers.
        let bits = unsafe { _mm_loadu_si128(from.cast()) };
        registers!(_mm256_cvtph_ps(bits))
    }

    #[inline(always)]
    unsafe fn transpose_8x8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the CPU has AVX2, and the caller promises the memory.
        unsafe { transpose_8x8(from, from_stride, to, to_stride) };
    }

    #[inline(always)]
    unsafe fn transpose_8x8_bf16(self, from: *const u16, from_stride: usize, to: *mut u16, to_stride: usize) {
        // SAFETY: the CPU has AVX2, and the caller promises the memory.
        unsafe { transpose_8x8_bf16(from, from_stride, to, to_stride) };
    }
}

/// [`Simd::transpose_8x8`] with AVX.
///
/// # Safety
/// As there, and the CPU has AVX.
#[inline(always)]
pub(super) unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    // SAFETY: the CPU has AVX, and the caller promises 8 rows of 8 numbers.
    let rows: [__m256; 8] = unsafe {
        [
            _mm256_loadu_ps(from),
            _mm256_loadu_ps(from.add(from_stride)),
            _mm256_loadu_ps(from.add(2 * from_stride)),
            _mm256_loadu_ps(from.add(3 * from_stride)),
            _mm256_loadu_ps(from.add(4 * from_stride)),
            _mm256_loadu_ps(from.add(5 * from_stride)),
            _mm256_loadu_ps(from.add(6 * from_stride)),
            _mm256_loadu_ps(from.add(7 * from_stride)),
        ]
    };
    let mut columns = rows;
    for quad in [0, 4] {
        // SAFETY: the CPU has AVX; registers only. Rows `quad..quad + 4`, of which each half becomes a 4x4 transpose.
        unsafe {
            let low01 = _mm256_unpacklo_ps(rows[quad], rows[quad + 1]);
            let high01 = _mm256_unpackhi_ps(rows[quad], rows[quad + 1]);
            let low23 = _mm256_unpacklo_ps(rows[quad + 2], rows[quad + 3]);
            let high23 = _mm256_unpackhi_ps(rows[quad + 2], rows[quad + 3]);
            columns[quad] = _mm256_shuffle_ps::<0x44>(low01, low23);
            columns[quad + 1] = _mm256_shuffle_ps::<0xee>(low01, low23);
            columns[quad + 2] = _mm256_shuffle_ps::<0x44>(high01, high23);
            columns[quad + 3] = _mm256_shuffle_ps::<0xee>(high01, high23);
        }
    }
    for column in 0..4 {
        // SAFETY: the CPU has AVX, and the caller promises room for 8 rows of 8 numbers.
        unsafe {
            let low = _mm256_permute2f128_ps::<0x20>(columns[column], columns[column + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(columns[column], columns[column + 4]);
            _mm256_storeu_ps(to.add(column * to_stride), low);
            _mm256_storeu_ps(to.add((column + 4) * to_stride), high);
        }
    }
}

/// [`Simd::transpose_8x8_bf16`] with SSE2.
///
/// # Safety
/// As there, and the CPU has SSE2.
#[inline(always)]
pub(super) unsafe fn transpose_8x8_bf16(from: *const u16, from_stride: usize, to: *mut u16, to_stride: usize) {
    let mut rows = [registers!(_mm_setzero_si128()); 8];
    for (idx, row) in rows.iter_mut().enumerate() {
        // SAFETY: the CPU has SSE2, and the caller promises 8 rows of 8 numbers, at any alignment.
        *row = unsafe { _mm_loadu_si128(from.add(idx * from_stride).cast()) };
    }
    // Two rows become pairs, two of pairs become fours, two of fours become columns.
    let [mut pairs, mut fours, mut columns] = [rows; 3];
    for idx in 0..4 {
        let (low, high) = (rows[2 * idx], rows[2 * idx + 1]);
        pairs[2 * idx] = registers!(_mm_unpacklo_epi16(low, high));
        pairs[2 * idx + 1] = registers!(_mm_unpackhi_epi16(low, high));
    }
    for half in 0..2 {
        for side in 0..2 {
            let (low, high) = (pairs[4 * half + side], pairs[4 * half + 2 + side]);
            fours[4 * half + 2 * side] = registers!(_mm_unpacklo_epi32(low, high));
            fours[4 * half + 2 * side + 1] = registers!(_mm_unpackhi_epi32(low, high));
        }
    }
    for idx in 0..4 {
        let (low, high) = (fours[idx], fours[4 + idx]);
        columns[2 * idx] = registers!(_mm_unpacklo_epi64(low, high));
        columns[2 * idx + 1] = registers!(_mm_unpackhi_epi64(low, high));
    }
    for (idx, column) in columns.into_iter().enumerate() {
        // SAFETY: the CPU has SSE2, and the caller promises room for 8 rows of 8 numbers, at any alignment.
        unsafe { _mm_storeu_si128(to.add(idx * to_stride).cast(), column) };
    }
}

impl Avx2 {
    /// All bits set in the first `count` lanes.
    #[inline(always)]
    fn mask(self, count: usize) -> __m256i {
        let count = count.min(8) as i32;
        registers!(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))
    }
}

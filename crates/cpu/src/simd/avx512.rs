//! AVX-512 F, BW, VL and DQ: 16 lanes.

use std::arch::x86_64::*;

use super::{Simd, WithSimd};

/// A CPU that has AVX-512 F, BW, VL and DQ. Made only by [`Avx512::run`].
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// Whether this CPU has the instructions.
    #[inline]
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
    }

    /// Runs `kernel`, compiled with the instructions.
    ///
    /// # Safety
    /// [`is_available`](Self::is_available).
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(crate) unsafe fn run<K: WithSimd>(kernel: K) -> K::Output {
        kernel.run(Self(()))
    }
}

/// An expression of intrinsics on registers.
macro_rules! registers {
    ($value:expr) => {{
        // SAFETY: an `Avx512` exists only where the CPU has the instructions; they touch no memory.
        unsafe { $value }
    }};
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 8;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        registers!(_mm512_set1_ps(value))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        registers!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn select_less(self, a: __m512, b: __m512, then: __m512, otherwise: __m512) -> __m512 {
        registers!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), otherwise, then))
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        registers!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn exp2_integral(self, a: __m512) -> __m512 {
        registers!({
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the CPU has the instruction, and the caller promises 16 readable numbers.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> __m512 {
        // SAFETY: the CPU has the instruction, and the mask selects the `count` numbers that the caller promises.
        unsafe { _mm512_maskz_loadu_ps(mask(count), from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: __m512) {
        // SAFETY: the CPU has the instruction, and the caller promises room for 16 numbers.
        unsafe { _mm512_storeu_ps(to, a) };
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, count: usize, a: __m512) {
        // SAFETY: the CPU has the instruction, and the mask selects the `count` numbers that the caller promises.
        unsafe { _mm512_mask_storeu_ps(to, mask(count), a) };
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> __m512 {
        // SAFETY: the CPU has the instruction, and the caller promises 16 readable numbers.
        let bits = unsafe { _mm256_loadu_si256(from.cast()) };
        registers!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, a: __m512) {
        let halves = registers!({
            let bits = _mm512_castps_si512(a);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
            // A NaN is cut, not rounded, and made quiet, so that its mantissa doesn't become zero.
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
            _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(is_nan, rounded, quiet)))
        });
        // SAFETY: the CPU has the instruction, and the caller promises room for 16 numbers.
        unsafe { _mm256_storeu_si256(to.cast(), halves) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> __m512 {
        // SAFETY: the CPU has the instruction, and the caller promises 16 readable numbers.
        let bits = unsafe { _mm256_loadu_si256(from.cast()) };
        registers!(_mm512_cvtph_ps(bits))
    }

    #[inline(always)]
    unsafe fn transpose_8x8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: a CPU with AVX-512 has AVX, and the caller promises the memory.
        unsafe { super::avx2::transpose_8x8(from, from_stride, to, to_stride) };
    }

    #[inline(always)]
    unsafe fn transpose_8x8_bf16(self, from: *const u16, from_stride: usize, to: *mut u16, to_stride: usize) {
        // SAFETY: a CPU with AVX-512 has SSE2, and the caller promises the memory.
        unsafe { super::avx2::transpose_8x8_bf16(from, from_stride, to, to_stride) };
    }
}

/// A bit for each of the first `count` lanes.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    ((1u32 << count.min(16)) - 1) as __mmask16
}

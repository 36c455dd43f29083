//! Plain Rust on arrays, for CPUs without AVX2; the compiler makes of it what the target has.

use half::{bf16, f16};

use super::Simd;

const LANES: usize = 8;

/// Any CPU.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// A function of each lane of one or more arrays.
macro_rules! lanewise {
    (|$($name:ident),+| $value:expr) => {{
        let mut result = [0.0; LANES];
        for lane in 0..LANES {
            $(let $name = $name[lane];)+
            result[lane] = $value;
        }
        result
    }};
}

impl Simd for Portable {
    type V = [f32; LANES];
    const LANES: usize = LANES;
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        lanewise!(|a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        lanewise!(|a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        lanewise!(|a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        lanewise!(|a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Not `mul_add`, which is a call into libm on targets without the instruction.
        lanewise!(|a, b, c| a * b + c)
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        lanewise!(|a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn select_less(self, a: Self::V, b: Self::V, then: Self::V, otherwise: Self::V) -> Self::V {
        lanewise!(|a, b, then, otherwise| if a < b { then } else { otherwise })
    }

    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        lanewise!(|a| (a + INTEGRAL) - INTEGRAL)
    }

    #[inline(always)]
    fn exp2_integral(self, a: Self::V) -> Self::V {
        // The sum's low bits hold the integer, and the shift drops all others.
        lanewise!(|a| f32::from_bits((a + (INTEGRAL + 127.0)).to_bits() << 23))
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::V {
        // SAFETY: the caller promises `LANES` readable numbers.
        unsafe { from.cast::<Self::V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller promises `count` readable numbers, and `lanes` has room for them.
        unsafe { std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), count.min(LANES)) };
        lanes
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: Self::V) {
        // SAFETY: the caller promises room for `LANES` numbers.
        unsafe { to.cast::<Self::V>().write_unaligned(a) };
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, count: usize, a: Self::V) {
        // SAFETY: the caller promises room for `count` numbers, and `a` has them.
        unsafe { std::ptr::copy_nonoverlapping(a.as_ptr(), to, count.min(LANES)) };
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const u16) -> Self::V {
        // SAFETY: the caller promises `LANES` readable numbers.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        lanewise!(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16, a: Self::V) {
        let mut bits = [0u16; LANES];
        for lane in 0..LANES {
            bits[lane] = bf16::from_f32(a[lane]).to_bits();
        }
        // SAFETY: the caller promises room for `LANES` numbers.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) };
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u16) -> Self::V {
        // SAFETY: the caller promises `LANES` readable numbers.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        lanewise!(|bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    unsafe fn transpose_8x8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..8 {
            for column in 0..8 {
                // SAFETY: the caller promises 8 rows of 8 numbers on both sides.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * from_stride + column) };
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose_8x8_bf16(self, from: *const u16, from_stride: usize, to: *mut u16, to_stride: usize) {
        for row in 0..8 {
            for column in 0..8 {
                // SAFETY: the caller promises 8 rows of 8 numbers on both sides, at any alignment.
                unsafe {
                    let bits = from.add(row * from_stride + column).read_unaligned();
                    to.add(column * to_stride + row).write_unaligned(bits);
                }
            }
        }
    }
}

/// 1.5 * 2^23: f32 numbers near it are the integers, so adding it rounds.
const INTEGRAL: f32 = 12_582_912.0;

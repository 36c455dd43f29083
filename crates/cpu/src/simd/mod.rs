//! Vectors of f32: one trait, one file per instruction set.
//!
//! A value of a [`Simd`] type is the proof that the CPU has its instructions: it is made only by
//! [`Isa::run`](crate::isa::Isa::run), which has checked. A kernel is a [`WithSimd`] whose `run`, and everything it
//! calls per vector, is `#[inline(always)]`, so that it is compiled inside the one function that has the instructions
//! enabled. Closures in such code are not inlined for sure; use loops.
//!
//! Everything is deterministic: a result depends on the operands and the instruction set only.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod element;
mod portable;
#[cfg(test)]
mod tests;

pub(crate) use element::Element;
pub(crate) use portable::Portable;

/// Code that is generic over the instruction set.
pub(crate) trait WithSimd {
    /// What it gives.
    type Output;

    /// Does it. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// An instruction set's vectors of f32.
pub(crate) trait Simd: Copy + Send + Sync {
    /// A vector.
    type V: Copy;
    /// Numbers in a vector, at most [`MAX_LANES`].
    const LANES: usize;
    /// Rows of the matrix micro-kernel: what the register file holds at two vectors a row.
    const TILE_ROWS: usize;

    /// All lanes `value`.
    fn splat(self, value: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once or twice.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`: `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { then } else { otherwise }` per lane; `otherwise` if either is NaN.
    fn select_less(self, a: Self::V, b: Self::V, then: Self::V, otherwise: Self::V) -> Self::V;
    /// The nearest integer, ties to even, for `|a| < 2^22`.
    fn round(self, a: Self::V) -> Self::V;
    /// `2^a` for integral `a` in `-126..=127`; zero for -127, infinity for 128. Anything for other lanes.
    fn exp2_integral(self, a: Self::V) -> Self::V;

    /// Reads a vector.
    ///
    /// # Safety
    /// `LANES` numbers can be read from `from`, at any alignment.
    unsafe fn load(self, from: *const f32) -> Self::V;
    /// Reads `count <= LANES` numbers; the other lanes are zero.
    ///
    /// # Safety
    /// `count` numbers can be read from `from`, at any alignment.
    unsafe fn load_partial(self, from: *const f32, count: usize) -> Self::V;
    /// Writes a vector.
    ///
    /// # Safety
    /// `LANES` numbers can be written to `to`, at any alignment.
    unsafe fn store(self, to: *mut f32, a: Self::V);
    /// Writes the first `count <= LANES` lanes.
    ///
    /// # Safety
    /// `count` numbers can be written to `to`, at any alignment.
    unsafe fn store_partial(self, to: *mut f32, count: usize, a: Self::V);
    /// Reads a vector of bf16.
    ///
    /// # Safety
    /// `LANES` bf16 can be read from `from`, at any alignment.
    unsafe fn load_bf16(self, from: *const u16) -> Self::V;
    /// Writes a vector as bf16, rounded to nearest even; NaN stays NaN.
    ///
    /// # Safety
    /// `LANES` bf16 can be written to `to`, at any alignment.
    unsafe fn store_bf16(self, to: *mut u16, a: Self::V);
    /// Reads a vector of f16.
    ///
    /// # Safety
    /// `LANES` f16 can be read from `from`, at any alignment.
    unsafe fn load_f16(self, from: *const u16) -> Self::V;

    /// Transposes 8 rows of 8 numbers, `from_stride` apart, into 8 rows `to_stride` apart.
    ///
    /// # Safety
    /// 8 numbers can be read from each of the 8 rows and written to each of the others, at any alignment; the two
    /// blocks don't overlap.
    unsafe fn transpose_8x8(self, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);

    /// The same with the bits of 16-bit numbers.
    ///
    /// # Safety
    /// As for [`transpose_8x8`](Self::transpose_8x8).
    unsafe fn transpose_8x8_bf16(self, from: *const u16, from_stride: usize, to: *mut u16, to_stride: usize);

    /// No lane set.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// `e^a` for `a <= 0`, within 2 units in the last place; NaN for NaN. Results below the smallest normal number
    /// (about 1.2e-38) are zero.
    ///
    /// Cephes' `expf`: `a = n ln 2 + r`, and a polynomial for `e^r`.
    #[inline(always)]
    fn exp_nonpositive(self, a: Self::V) -> Self::V {
        // NaN is the second operand of `max`, which keeps that one.
        let a = self.max(self.splat(-88.0), a);
        let n = self.round(self.mul(a, self.splat(std::f32::consts::LOG2_E)));
        self.mul(exp_fraction(self, a, n), self.exp2_integral(n))
    }
}

/// `e^(a - n ln 2)`, for `|a - n ln 2| <= ln 2 / 2`. Coefficients: Cephes, `single/expf.c`.
#[inline(always)]
fn exp_fraction<S: Simd>(s: S, a: S::V, n: S::V) -> S::V {
    let r = s.fma(n, s.splat(-0.693_359_4), a);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    p = s.fma(p, r, s.splat(1.398_199_9e-3));
    p = s.fma(p, r, s.splat(8.333_452e-3));
    p = s.fma(p, r, s.splat(4.166_579_6e-2));
    p = s.fma(p, r, s.splat(1.666_666_5e-1));
    p = s.fma(p, r, s.splat(0.5));
    s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0))
}

/// The most lanes that any instruction set has.
pub(crate) const MAX_LANES: usize = 16;

//! Functions of one number, in plain arithmetic that vectorizes.
//!
//! Polynomials are evaluated in pairs (Estrin's scheme): Horner's chain of dependent operations would be longer than
//! what a core can overlap.

use super::kernel::multiply_add;

/// A function applied to each number.
pub(super) trait Function: Copy + Send + Sync {
    /// Its value at `x`.
    fn at<const FUSED: bool>(self, x: f32) -> f32;
}

/// `x * sigmoid(x)`.
#[derive(Clone, Copy)]
pub(super) struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn at<const FUSED: bool>(self, x: f32) -> f32 {
        x / one_plus_exp::<FUSED>(-x)
    }
}

/// `x * sigmoid(1.702 x)`.
#[derive(Clone, Copy)]
pub(super) struct QuickGelu;

impl Function for QuickGelu {
    #[inline(always)]
    fn at<const FUSED: bool>(self, x: f32) -> f32 {
        x / one_plus_exp::<FUSED>(-1.702 * x)
    }
}

/// `x * (1 + tanh(u)) / 2` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`; `(1 + tanh(u)) / 2` is `sigmoid(2 u)`.
#[derive(Clone, Copy)]
pub(super) struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn at<const FUSED: bool>(self, x: f32) -> f32 {
        const FACTOR: f32 = -1.595_769; // -2 sqrt(2 / pi)
        let cubic = x * multiply_add::<FUSED>(FACTOR * 0.044715 * x, x, FACTOR);
        x / one_plus_exp::<FUSED>(cubic)
    }
}

/// `x * (1 + erf(x / sqrt 2)) / 2`.
#[derive(Clone, Copy)]
pub(super) struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn at<const FUSED: bool>(self, x: f32) -> f32 {
        let z = x * std::f32::consts::FRAC_1_SQRT_2;
        let below = half_erfc::<FUSED>(z.abs());
        x * if z < 0.0 { below } else { 1.0 - below }
    }
}

/// `scale * x + shift`, rounded twice as in torch.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    pub(super) scale: f32,
    pub(super) shift: f32,
}

impl Function for Affine {
    #[inline(always)]
    fn at<const FUSED: bool>(self, x: f32) -> f32 {
        self.scale * x + self.shift
    }
}

/// The number itself.
#[derive(Clone, Copy)]
pub(super) struct Identity;

impl Function for Identity {
    #[inline(always)]
    fn at<const FUSED: bool>(self, x: f32) -> f32 {
        x
    }
}

/// `1 + e^x`; infinite above 88.73.
#[inline(always)]
fn one_plus_exp<const FUSED: bool>(x: f32) -> f32 {
    multiply_add::<FUSED>(half_exp::<FUSED>(x), 2.0, 1.0)
}

/// `e^x / 2` to 2 units in the last place for `x` up to 88.9, no less than `e^88.9 / 2` above; 0 below -87. NaN stays
/// NaN. The half is what keeps `2^n` representable up to the largest `x` at which `e^x` is.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`, and the polynomial of Cephes' `expf` for `e^r`.
#[inline(always)]
fn half_exp<const FUSED: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer, held in the low bits
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };
    let rounded = multiply_add::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = multiply_add::<FUSED>(n, -0.693_359_4, x);
    let r = multiply_add::<FUSED>(n, 2.121_944_4e-4, r);
    let r2 = r * r;
    let p01 = multiply_add::<FUSED>(1.666_666_5e-1, r, 0.5);
    let p23 = multiply_add::<FUSED>(8.333_452e-3, r, 4.166_579_6e-2);
    let p45 = multiply_add::<FUSED>(1.987_569_1e-4, r, 1.398_199_9e-3);
    let p = multiply_add::<FUSED>(multiply_add::<FUSED>(p45, r2, p23), r2, p01);
    let exp_r = multiply_add::<FUSED>(p, r2, r) + 1.0;
    // 2^(n - 1) for n in -125..=128, and 0 for n = -126.
    exp_r * f32::from_bits(rounded.to_bits().wrapping_add(126) << 23)
}

/// `(1 - erf(t)) / 2` for `t >= 0`, to 4e-8; 0 where the exact value is below 1e-38.
///
/// `1 - erf(t) = e^(t q(t))`, with `q` fitted to the double precision function over 0 to 9.4, minimax with the weight
/// `t (1 - erf(t))^0.6`; the fit's absolute error is 5e-9.
#[inline(always)]
pub(super) fn half_erfc<const FUSED: bool>(t: f32) -> f32 {
    let t = if t > 10.0 { 10.0 } else { t };
    let t2 = t * t;
    let t4 = t2 * t2;
    let q01 = multiply_add::<FUSED>(-0.636_614_86, t, -1.128_379_5);
    let q23 = multiply_add::<FUSED>(1.920_755e-2, t, -0.102_801_874);
    let q45 = multiply_add::<FUSED>(-1.662_437_5e-3, t, 1.081_716_5e-4);
    let q67 = multiply_add::<FUSED>(-1.419_824_6e-4, t, 6.633_720_5e-4);
    let q89 = multiply_add::<FUSED>(-8.679_195e-7, t, 1.685_609_6e-5);
    let low = multiply_add::<FUSED>(q23, t2, q01);
    let high = multiply_add::<FUSED>(q67, t2, q45);
    let high = multiply_add::<FUSED>(q89, t4, high);
    half_exp::<FUSED>(multiply_add::<FUSED>(high, t4, low) * t)
}

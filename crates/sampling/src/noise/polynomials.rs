//! Single-precision logarithm, sine and cosine with the rounding of torch's vectorized normal fill.
//!
//! The polynomials and the argument reduction are those of the Cephes library's `logf` and `sinf` (Moshier 1984-1992),
//! in the order of evaluation of their well-known AVX form (Pommier 2007, Garberoglio 2012). torch's binaries fuse
//! most multiplications with the addition that follows; which ones was found by comparing bits with torch, and every
//! `mul_add` here is one of those. No other function of the same accuracy will do: the last bit would differ.
//!
//! Valid for what Box-Muller asks only: `log` for normal numbers in `(0, 1]`, `sin_cos` for `0..=2 pi`.

/// Natural logarithm of a normal number in `(0, 1]`.
pub(super) fn log(x: f32) -> f32 {
    // x = mantissa * 2^exponent, with the mantissa in [sqrt(1/2), sqrt(2)).
    let mut exponent = ((x.to_bits() >> 23) as i32 - 126) as f32;
    let mut mantissa = f32::from_bits((x.to_bits() & 0x007f_ffff) | 0.5f32.to_bits());
    if mantissa < std::f32::consts::FRAC_1_SQRT_2 {
        exponent -= 1.0;
        mantissa = (mantissa - 1.0) + mantissa;
    } else {
        mantissa -= 1.0;
    }
    const COEFFICIENTS: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_87e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let square = mantissa * mantissa;
    let series = COEFFICIENTS[1..].iter().fold(COEFFICIENTS[0], |sum, &c| sum.mul_add(mantissa, c)) * mantissa;
    // ln 2 in two parts: the first has few bits, so that its multiples are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let tail = series.mul_add(square, exponent * LN_2_LOW);
    let tail = square.mul_add(-0.5, tail);
    exponent.mul_add(LN_2_HIGH, mantissa + tail)
}

/// Sine and cosine of an angle in `0..=2 pi`.
pub(super) fn sin_cos(angle: f32) -> (f32, f32) {
    // The nearest even multiple of pi/4, subtracted in three parts.
    let octant = ((angle * 1.273_239_5) as i32 + 1) & !1;
    let multiple = octant as f32;
    let x = multiple.mul_add(-0.785_156_25, angle);
    let x = multiple.mul_add(-2.418_756_5e-4, x);
    let x = multiple.mul_add(-3.774_895e-8, x);
    let square = x * x;

    let cos = 2.443_315_7e-5f32.mul_add(square, -1.388_731_6e-3).mul_add(square, 4.166_664_6e-2);
    let cos = (cos * square).mul_add(square, -(square * 0.5)) + 1.0;
    let sin = (-1.951_529_6e-4f32).mul_add(square, 8.332_161e-3).mul_add(square, -1.666_665_5e-1);
    let sin = (sin * square).mul_add(x, x);

    let (sin, cos) = if octant & 2 == 0 { (sin, cos) } else { (cos, sin) };
    let sin = if octant & 4 == 0 { sin } else { -sin };
    let cos = if (octant - 2) & 4 == 0 { -cos } else { cos };
    (sin, cos)
}

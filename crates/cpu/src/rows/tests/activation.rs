use plimsoll_device::Activation::{self, Affine, Gelu, GeluTanh, QuickGelu, Silu};

use super::super::function::half_erfc;
use super::super::{activate, geglu};
use super::{executions, isas, numbers};
use crate::numbers::NumbersMut;

const FUNCTIONS: [Activation; 4] = [Silu, QuickGelu, Gelu, GeluTanh];

/// `erf(x) = 2 / sqrt(pi) e^(-x^2) sum of 2^n x^(2n + 1) / (1 * 3 * .. (2n + 1))`: no cancellation.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, 0.0, 1.0);
    while sum + term != sum {
        sum += term;
        odd += 2.0;
        term *= 2.0 * x * x / odd;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

fn exact(activation: Activation, x: f64) -> f64 {
    match activation {
        Silu => x / (1.0 + (-x).exp()),
        QuickGelu => x / (1.0 + (-1.702 * x).exp()),
        Gelu => x * (1.0 + erf(x / 2f64.sqrt())) / 2.0,
        GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            x * (1.0 + u.tanh()) / 2.0
        }
        Affine { scale, shift } => f64::from(scale) * x + f64::from(shift),
    }
}

fn at(isa: crate::isa::Isa, activation: Activation, x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    activate(isa, activation, NumbersMut::F32(&mut y));
    y
}

#[test]
fn activations_are_their_definitions_at_any_length() {
    for activation in FUNCTIONS.into_iter().chain([Affine { scale: 1.25, shift: -0.5 }]) {
        for len in [0, 1, 7, 8, 15, 16, 31, 33, 1000, 40_001] {
            let y = numbers(len as u64, len, 0.0, 12.0);
            for execution in executions(&[], &y, |isa, _, y| activate(isa, activation, y)) {
                execution.check(2e-6, execution.before.iter().map(|x| exact(activation, f64::from(*x))));
            }
        }
    }
}

/// 5e-7 is 4 units in the last place of a result near 1.
#[test]
fn errors_are_a_few_units_in_the_last_place_over_the_whole_range() {
    let x: Vec<f32> = (-200_000..=200_000).map(|step| step as f32 * 1e-4).collect();
    for isa in isas() {
        for activation in FUNCTIONS {
            for (x, found) in x.iter().zip(at(isa, activation, &x)) {
                let expected = exact(activation, f64::from(*x));
                let error = (f64::from(found) - expected).abs();
                assert!(error <= 5e-7 * expected.abs().max(0.5), "{isa} {activation:?}({x}) is {found}: {error:e} off");
            }
        }
    }
}

#[test]
fn erf_is_exact_to_1e_7() {
    for step in 0..=100_000 {
        let t = step as f32 * 1e-4;
        for found in [half_erfc::<true>(t), half_erfc::<false>(t)] {
            let error = (1.0 - 2.0 * f64::from(found) - erf(f64::from(t))).abs();
            assert!(error <= 1e-7, "erf({t}) is {error:e} off");
        }
    }
}

#[test]
fn special_numbers_go_through_as_in_torch() {
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MAX, f32::MIN, 1e30, -1e30, 1e-40, -1e-40];
    // Longer than a vector, so that vector code and the code for the rest are both tested.
    for x in [&x[..], &x.repeat(5)] {
        for isa in isas() {
            for activation in FUNCTIONS {
                let y = at(isa, activation, x);
                for (x, y) in x.iter().zip(&y) {
                    match *x {
                        // -infinity * 0
                        x if x.is_nan() || x == f32::NEG_INFINITY => {
                            assert!(y.is_nan(), "{isa} {activation:?}({x}): {y}")
                        }
                        x if x < -1.0 => assert_eq!(*y, 0.0, "{isa} {activation:?}({x})"),
                        x if x > 1.0 => assert_eq!(*y, x, "{isa} {activation:?}({x})"),
                        0.0 => assert_eq!(y.to_bits(), x.to_bits(), "{isa} {activation:?}({x})"),
                        x => assert!((y - x / 2.0).abs() <= 1e-44, "{isa} {activation:?}({x}): {y}"),
                    }
                }
            }
            let y = at(isa, Affine { scale: -2.0, shift: 1.0 }, &x[..5]);
            assert!(y[0].is_nan());
            assert_eq!(y[1..], [f32::NEG_INFINITY, f32::INFINITY, 1.0, 1.0]);
        }
    }
}

#[test]
fn geglu_gates_the_first_half_by_the_second() {
    for (rows, columns) in [(0, 4), (3, 0), (1, 1), (2, 3), (5, 8), (3, 17), (7, 160), (41, 1280)] {
        let x = numbers(7, rows * columns * 2, 0.0, 4.0);
        let y = vec![f32::NAN; rows * columns];
        for execution in executions(&x, &y, |isa, x, y| geglu(isa, rows, columns, x, y)) {
            let expected = (0..rows * columns).map(|idx| {
                let (row, column) = (idx / columns, idx % columns);
                let at = |column: usize| f64::from(execution.x[row * 2 * columns + column]);
                at(column) * exact(Gelu, at(columns + column))
            });
            execution.check(5e-6, expected);
        }
    }
}

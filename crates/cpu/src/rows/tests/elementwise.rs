use half::bf16;

use super::super::{add, add_per_batch, combine, convert, prelu};
use super::{executions, isas, numbers, to_bf16};
use crate::numbers::{Numbers, NumbersMut};

#[test]
fn add_adds() {
    for len in [0, 1, 9, 33, 70_001] {
        let (x, y) = (numbers(1, len, 0.0, 3.0), numbers(2, len, 1.0, 2.0));
        for execution in executions(&x, &y, add) {
            let sums = execution.x.iter().zip(&execution.before).map(|(x, y)| f64::from(*x) + f64::from(*y));
            execution.check(0.0, sums);
        }
    }
}

#[test]
fn add_per_batch_adds_to_every_row_of_an_image() {
    for (batch, rows, columns) in [(0, 3, 4), (2, 0, 4), (2, 3, 0), (1, 1, 1), (3, 5, 7), (2, 64, 33), (3, 900, 40)] {
        let (x, y) = (numbers(3, batch * columns, 0.0, 3.0), numbers(4, batch * rows * columns, 1.0, 2.0));
        for execution in executions(&x, &y, |isa, x, y| add_per_batch(isa, batch, rows, columns, x, y)) {
            let sums = execution.before.iter().enumerate().map(|(idx, y)| {
                let (image, column) = (idx / (rows * columns), idx % columns);
                f64::from(execution.x[image * columns + column]) + f64::from(*y)
            });
            execution.check(0.0, sums);
        }
    }
}

/// In f32 it is the very bits of `a * x + b * y + ..` written out, as torch computes it; in bf16 it is rounded once.
#[test]
fn combine_sums_the_scaled_terms_in_order() {
    const FACTORS: [f32; 3] = [0.7, -1.3, 0.01];
    let sum = |x: [f32; 3], count: usize| (1..count).fold(FACTORS[0] * x[0], |sum, term| sum + FACTORS[term] * x[term]);
    for len in [0, 1, 9, 1023, 1025, 70_001] {
        let x = [1, 2, 3].map(|seed| numbers(seed, len, 0.1, 3.0));
        let x_bf16 = [0, 1, 2].map(|term| to_bf16(&x[term]));
        for (isa, count) in isas().flat_map(|isa| [(isa, 1), (isa, 2), (isa, 3)]) {
            let mut y = vec![f32::NAN; len];
            let terms: Vec<_> = (0..count).map(|term| (FACTORS[term], Numbers::F32(&x[term]))).collect();
            combine(isa, &terms, NumbersMut::F32(&mut y));
            assert!(
                (0..len).all(|idx| y[idx] == sum([0, 1, 2].map(|term| x[term][idx]), count)),
                "{isa}, {count} terms"
            );

            let mut y = vec![bf16::NAN; len];
            let terms: Vec<_> = (0..count).map(|term| (FACTORS[term], Numbers::Bf16(&x_bf16[term]))).collect();
            combine(isa, &terms, NumbersMut::Bf16(&mut y));
            for (idx, y) in y.iter().enumerate() {
                let expected = sum([0, 1, 2].map(|term| x_bf16[term][idx].to_f32()), count);
                assert_eq!(*y, bf16::from_f32(expected), "{isa}, {count} terms");
            }
        }
    }
}

#[test]
#[should_panic(expected = "no terms")]
fn combine_needs_a_term() {
    combine(crate::isa::Isa::Portable, &[], NumbersMut::F32(&mut []));
}

#[test]
fn prelu_scales_what_is_negative() {
    for (rows, columns) in [(0, 3), (3, 0), (1, 1), (5, 7), (9, 64), (700, 65)] {
        let (slope, y) = (numbers(5, columns, 0.2, 0.5), numbers(6, rows * columns, 0.0, 3.0));
        for execution in executions(&[], &y, |isa, _, y| prelu(isa, rows, columns, &slope, y)) {
            let expected = execution.before.iter().enumerate().map(|(idx, y)| {
                let y = f64::from(*y);
                if y < 0.0 { y * f64::from(slope[idx % columns]) } else { y }
            });
            execution.check(0.0, expected);
        }
    }
    for isa in isas() {
        let mut y = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, -1e-40];
        prelu(isa, 5, 1, &[0.5], NumbersMut::F32(&mut y));
        assert!(y[0].is_nan());
        assert_eq!(y[1..], [f32::INFINITY, f32::NEG_INFINITY, -0.0, -5e-41]);
    }
}

/// Every upper half with lower halves around the ties; `half`'s conversion is another implementation.
#[test]
fn convert_rounds_to_nearest_even() {
    let lower_halves = [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
    let x: Vec<f32> =
        (0..=0xffffu32).flat_map(|upper| lower_halves.map(|lower| f32::from_bits(upper << 16 | lower))).collect();
    for isa in isas() {
        let mut y = vec![bf16::ZERO; x.len()];
        convert(isa, Numbers::F32(&x), NumbersMut::Bf16(&mut y));
        for (x, y) in x.iter().zip(&y) {
            let expected = bf16::from_f32(*x);
            assert!(
                if x.is_nan() { y.is_nan() } else { *y == expected && y.to_bits() == expected.to_bits() },
                "{isa}: {x}"
            );
        }
    }
}

#[test]
fn convert_to_f32_or_the_same_format_is_exact() {
    let x: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    for isa in isas() {
        let mut wide = vec![0.0; x.len()];
        convert(isa, Numbers::Bf16(&x), NumbersMut::F32(&mut wide));
        assert!(x.iter().zip(&wide).all(|(x, y)| y.to_bits() == u32::from(x.to_bits()) << 16), "{isa}");

        let mut same = vec![0.0; wide.len()];
        convert(isa, Numbers::F32(&wide), NumbersMut::F32(&mut same));
        assert!(wide.iter().zip(&same).all(|(x, y)| x.to_bits() == y.to_bits()), "{isa}");

        let mut same = vec![bf16::ZERO; x.len()];
        convert(isa, Numbers::Bf16(&x), NumbersMut::Bf16(&mut same));
        assert!(x.iter().zip(&same).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()), "{isa}");
    }
}

#[test]
#[should_panic(expected = "differ in format")]
fn formats_may_not_be_mixed() {
    add(crate::isa::Isa::Portable, Numbers::Bf16(&[bf16::ONE]), NumbersMut::F32(&mut [1.0]));
}

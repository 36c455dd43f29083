//! Each instruction set's vectors against std's f32 and half's bf16 and f16.

use half::{bf16, f16};

use super::{Element, MAX_LANES, Simd, WithSimd};
use crate::isa::Isa;
use crate::naive::isas;

/// What is done to each lane of up to three operands.
#[derive(Clone, Copy, Debug)]
enum Operation {
    ExpNonpositive,
    Add,
    Sub,
    Mul,
    Div,
    Max,
    SelectLess,
    Round,
    Exp2Integral,
    Fma,
}

struct Apply {
    operation: Operation,
    operands: [f32; 3],
}

impl WithSimd for Apply {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let [a, b, c] = self.operands.map(|operand| simd.splat(operand));
        let result = match self.operation {
            Operation::ExpNonpositive => simd.exp_nonpositive(a),
            Operation::Add => simd.add(a, b),
            Operation::Sub => simd.sub(a, b),
            Operation::Mul => simd.mul(a, b),
            Operation::Div => simd.div(a, b),
            Operation::Max => simd.max(a, b),
            Operation::SelectLess => simd.select_less(a, b, c, a),
            Operation::Round => simd.round(a),
            Operation::Exp2Integral => simd.exp2_integral(a),
            Operation::Fma => simd.fma(a, b, c),
        };
        let mut lanes = [0.0; MAX_LANES];
        f32::store(simd, &mut lanes, result);
        assert!(lanes[..S::LANES].iter().all(|lane| lane.to_bits() == lanes[0].to_bits()), "{lanes:?}");
        lanes[0]
    }
}

fn apply(isa: Isa, operation: Operation, operands: [f32; 3]) -> f32 {
    isa.run(Apply { operation, operands })
}

#[test]
fn exp_is_right_from_minus_infinity_to_zero() {
    let mut samples: Vec<f32> = (0..4800).map(|idx| idx as f32 * -0.0219).collect();
    samples.extend([-0.0, -1e-30, -1e-42, -87.33, -87.4, -103.9, -1e10, f32::MIN, f32::NEG_INFINITY]);
    for isa in isas() {
        for &a in &samples {
            let expected = f64::from(a).exp();
            let actual = f64::from(apply(isa, Operation::ExpNonpositive, [a, 0.0, 0.0]));
            assert!((actual - expected).abs() <= (expected * 2.4e-7).max(1.3e-38), "{isa}: e^{a} is {actual}");
        }
        assert_eq!(apply(isa, Operation::ExpNonpositive, [0.0; 3]), 1.0);
        assert_eq!(apply(isa, Operation::ExpNonpositive, [f32::NEG_INFINITY; 3]), 0.0);
        assert!(apply(isa, Operation::ExpNonpositive, [f32::NAN; 3]).is_nan());
    }
}

#[test]
fn lanewise_operations_agree_with_std() {
    let pairs = [(1.5, -2.5), (-0.0, 3.0), (-7.25, -7.5), (0.5, 0.5), (1e30, -1e-30), (f32::INFINITY, 1.0)];
    for isa in isas() {
        for (a, b) in pairs {
            for (operation, expected) in [
                (Operation::Add, a + b),
                (Operation::Sub, a - b),
                (Operation::Mul, a * b),
                (Operation::Div, a / b),
                (Operation::Max, a.max(b)),
                (Operation::SelectLess, if a < b { 9.0 } else { a }),
                (Operation::Fma, a * b + 9.0),
            ] {
                assert_eq!(apply(isa, operation, [a, b, 9.0]), expected, "{isa} {operation:?} {a} {b}");
            }
        }
        for a in [-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 126.7, -4_000_000.3f32] {
            assert_eq!(apply(isa, Operation::Round, [a, 0.0, 0.0]), a.round_ties_even(), "{isa} {a}");
        }
        for exponent in -126..=127 {
            let expected = 2f64.powi(exponent) as f32;
            assert_eq!(apply(isa, Operation::Exp2Integral, [exponent as f32, 0.0, 0.0]), expected, "{isa} {exponent}");
        }
        assert_eq!(apply(isa, Operation::Exp2Integral, [-127.0; 3]), 0.0);
        assert_eq!(apply(isa, Operation::Exp2Integral, [128.0; 3]), f32::INFINITY);
        assert_eq!(apply(isa, Operation::Max, [f32::NAN, 1.0, 0.0]), 1.0);
        assert!(apply(isa, Operation::Max, [1.0, f32::NAN, 0.0]).is_nan());
    }
}

/// Reads numbers and writes them again, `count` at a time.
struct Copy<'a, A, B> {
    from: &'a [A],
    to: &'a mut [B],
    count: usize,
}

impl<A: Element, B: Element> WithSimd for Copy<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let count = self.count.min(S::LANES);
        for (from, to) in self.from.chunks(count).zip(self.to.chunks_mut(count)) {
            B::store(simd, to, A::load(simd, from));
        }
    }
}

#[test]
fn every_bf16_survives_and_every_upper_half_rounds_as_half_does() {
    let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let near: Vec<f32> = (0..=u16::MAX)
        .flat_map(|upper| {
            [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|low| f32::from_bits(u32::from(upper) << 16 | low))
        })
        .collect();
    for isa in isas() {
        for count in [1, 3, 7, 8, 11, 16] {
            let mut wide = vec![0.0f32; all.len()];
            isa.run(Copy { from: &all, to: &mut wide, count });
            assert!(all.iter().zip(&wide).all(|(a, b)| u32::from(a.to_bits()) << 16 == b.to_bits()), "{isa} {count}");
            let mut rounded = vec![bf16::ZERO; near.len()];
            isa.run(Copy { from: &near, to: &mut rounded, count });
            for (number, rounded) in near.iter().zip(&rounded) {
                assert_eq!(rounded.to_bits(), bf16::from_f32(*number).to_bits(), "{isa} {count} {number}");
            }
        }
    }
}

struct LoadF16<'a>(&'a [u16; MAX_LANES]);

impl WithSimd for LoadF16<'_> {
    type Output = [f32; MAX_LANES];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Self::Output {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: there are MAX_LANES numbers.
        f32::store(simd, &mut lanes, unsafe { simd.load_f16(self.0.as_ptr()) });
        lanes
    }
}

#[test]
fn every_f16_is_read_exactly() {
    for isa in isas() {
        for first in (0..=u16::MAX).step_by(8) {
            let bits = std::array::from_fn(|lane| first.wrapping_add(lane as u16));
            let lanes = isa.run(LoadF16(&bits));
            for (lane, bits) in lanes[..isa.lanes()].iter().zip(bits) {
                let expected = f16::from_bits(bits).to_f32();
                assert!(*lane == expected || lane.is_nan() && expected.is_nan(), "{isa} {bits:#x}");
            }
        }
    }
}

struct Constants;

impl WithSimd for Constants {
    type Output = (usize, usize);

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Self::Output {
        (S::LANES, S::TILE_ROWS)
    }
}

#[test]
fn the_constants_agree() {
    for isa in isas() {
        assert_eq!(isa.run(Constants), (isa.lanes(), isa.tile_rows()), "{isa}");
    }
}

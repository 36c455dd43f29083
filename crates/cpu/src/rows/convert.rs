//! Copies numbers between f32 and bf16.

use super::kernel::{Kernel, run};
use super::number::Number;
use super::spread;
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

/// Copies `x` to `y`, rounding to nearest even where `y` has fewer bits.
pub(crate) fn convert(isa: Isa, x: Numbers<'_>, y: NumbersMut<'_>) {
    match (x, y) {
        (Numbers::F32(x), NumbersMut::F32(y)) => copy(isa, x, y),
        (Numbers::F32(x), NumbersMut::Bf16(y)) => copy(isa, x, y),
        (Numbers::Bf16(x), NumbersMut::F32(y)) => copy(isa, x, y),
        (Numbers::Bf16(x), NumbersMut::Bf16(y)) => copy(isa, x, y),
    }
}

fn copy<X: Number, Y: Number>(isa: Isa, x: &[X], y: &mut [Y]) {
    assert_eq!(x.len(), y.len(), "convert: numbers of input and output");
    spread::over_rows(y, 1, |first, y| run(isa, Copy { x: &x[first..][..y.len()], y }));
}

struct Copy<'a, X, Y> {
    x: &'a [X],
    y: &'a mut [Y],
}

impl<X: Number, Y: Number> Kernel for Copy<'_, X, Y> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (x, y) in self.x.iter().zip(self.y) {
            *y = Y::store(x.load());
        }
    }
}

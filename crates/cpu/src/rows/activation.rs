//! Functions of one number over many, and the gated GELU.

use plimsoll_device::Activation;

use super::function::{Affine, Function, Gelu, GeluTanh, QuickGelu, Silu};
use super::kernel::{Kernel, run};
use super::number::{Number, any_format, same_format};
use super::spread;
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

/// Applies `activation` to each number of `y`.
pub(crate) fn activate(isa: Isa, activation: Activation, y: NumbersMut<'_>) {
    any_format!(y => match activation {
        Activation::Silu => map(isa, Silu, y),
        Activation::QuickGelu => map(isa, QuickGelu, y),
        Activation::Gelu => map(isa, Gelu, y),
        Activation::GeluTanh => map(isa, GeluTanh, y),
        Activation::Affine { scale, shift } => map(isa, Affine { scale, shift }, y),
    })
}

/// `y[r, c] = x[r, c] * gelu(x[r, columns + c])` for `x` of `[rows, 2 * columns]`.
pub(crate) fn geglu(isa: Isa, rows: usize, columns: usize, x: Numbers<'_>, y: NumbersMut<'_>) {
    same_format!("geglu", x, y => {
        assert_eq!(x.len(), rows * 2 * columns, "geglu: numbers of the input");
        assert_eq!(y.len(), rows * columns, "geglu: numbers of the output");
        spread::over_rows(y, columns, |first_row, y| {
            run(isa, GatedGelu { x: &x[first_row * 2 * columns..][..2 * y.len()], columns, y });
        });
    })
}

fn map<N: Number, F: Function>(isa: Isa, function: F, y: &mut [N]) {
    spread::over_rows(y, 1, |_, y| run(isa, Map { function, y }));
}

struct Map<'a, N, F> {
    function: F,
    y: &'a mut [N],
}

impl<N: Number, F: Function> Kernel for Map<'_, N, F> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for y in self.y {
            *y = N::store(self.function.at::<FUSED>(y.load()));
        }
    }
}

struct GatedGelu<'a, N> {
    x: &'a [N],
    columns: usize,
    y: &'a mut [N],
}

impl<N: Number> Kernel for GatedGelu<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (x, y) in self.x.chunks_exact(2 * self.columns).zip(self.y.chunks_exact_mut(self.columns)) {
            let (value, gate) = x.split_at(self.columns);
            for ((value, gate), y) in value.iter().zip(gate).zip(y) {
                *y = N::store(value.load() * Gelu.at::<FUSED>(gate.load()));
            }
        }
    }
}

//! Sums and slopes: operations that meet each number once.

use super::kernel::{Kernel, run};
use super::number::{Number, any_format, same_format};
use super::spread;
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

/// `y += x`.
pub(crate) fn add(isa: Isa, x: Numbers<'_>, y: NumbersMut<'_>) {
    same_format!("add", x, y => {
        assert_eq!(x.len(), y.len(), "add: numbers of input and output");
        spread::over_rows(y, 1, |first, y| run(isa, Add { x: &x[first..][..y.len()], y }));
    })
}

/// `y[b, r, c] += x[b, c]` for `y` of `[batch, rows, columns]`.
pub(crate) fn add_per_batch(isa: Isa, batch: usize, rows: usize, columns: usize, x: Numbers<'_>, y: NumbersMut<'_>) {
    same_format!("add_per_batch", x, y => {
        assert_eq!(x.len(), batch * columns, "add_per_batch: numbers of the input");
        assert_eq!(y.len(), batch * rows * columns, "add_per_batch: numbers of the output");
        spread::over_rows(y, columns, |first_row, y| {
            let (mut row, mut y) = (first_row, y);
            while !y.is_empty() {
                let (image, left) = (row / rows, rows - row % rows);
                let (of_image, rest) = y.split_at_mut((left * columns).min(y.len()));
                run(isa, AddToRows { x: &x[image * columns..][..columns], y: of_image });
                (row, y) = (row + left, rest);
            }
        });
    })
}

/// `y = sum of factor * x` over the terms, from the first to the last, in f32 and rounded after each product and sum
/// as torch does. At least one term.
pub(crate) fn combine(isa: Isa, terms: &[(f32, Numbers<'_>)], y: NumbersMut<'_>) {
    assert!(!terms.is_empty(), "combine: no terms");
    any_format!(y => combine_into(isa, terms, y))
}

/// `y[r, c] = y[r, c] < 0 ? slope[c] * y[r, c] : y[r, c]`.
pub(crate) fn prelu(isa: Isa, rows: usize, columns: usize, slope: &[f32], y: NumbersMut<'_>) {
    assert_eq!(slope.len(), columns, "prelu: slopes");
    any_format!(y => {
        assert_eq!(y.len(), rows * columns, "prelu: numbers");
        spread::over_rows(y, columns, |_, y| run(isa, Prelu { slope, y }));
    })
}

struct Add<'a, N> {
    x: &'a [N],
    y: &'a mut [N],
}

impl<N: Number> Kernel for Add<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (x, y) in self.x.iter().zip(self.y) {
            *y = N::store(y.load() + x.load());
        }
    }
}

struct AddToRows<'a, N> {
    x: &'a [N],
    y: &'a mut [N],
}

impl<N: Number> Kernel for AddToRows<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for y in self.y.chunks_exact_mut(self.x.len()) {
            for (x, y) in self.x.iter().zip(y) {
                *y = N::store(y.load() + x.load());
            }
        }
    }
}

struct Prelu<'a, N> {
    slope: &'a [f32],
    y: &'a mut [N],
}

impl<N: Number> Kernel for Prelu<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for y in self.y.chunks_exact_mut(self.slope.len()) {
            for (slope, y) in self.slope.iter().zip(y) {
                let x = y.load();
                *y = N::store(if x < 0.0 { slope * x } else { x });
            }
        }
    }
}

fn combine_into<N: Number>(isa: Isa, terms: &[(f32, Numbers<'_>)], y: &mut [N]) {
    // Sums of a block stay in the L1 cache, and unrounded until the last term is in.
    const BLOCK_LEN: usize = 1024;
    for (_, x) in terms {
        assert_eq!(x.len(), y.len(), "combine: numbers of input and output");
    }
    spread::over_rows(y, 1, |first, y| {
        let mut sums = [0.0; BLOCK_LEN];
        for (block, y) in y.chunks_mut(BLOCK_LEN).enumerate() {
            let sums = &mut sums[..y.len()];
            for (term, (factor, x)) in terms.iter().enumerate() {
                let x = N::slice(*x).expect("combine: input and output have one format");
                let x = &x[first + block * BLOCK_LEN..][..y.len()];
                run(isa, Accumulate { factor: *factor, x, is_first: term == 0, sums });
            }
            run(isa, Store { sums, y });
        }
    });
}

struct Accumulate<'a, N> {
    factor: f32,
    x: &'a [N],
    is_first: bool,
    sums: &'a mut [f32],
}

impl<N: Number> Kernel for Accumulate<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        if self.is_first {
            for (x, sum) in self.x.iter().zip(self.sums) {
                *sum = self.factor * x.load();
            }
        } else {
            for (x, sum) in self.x.iter().zip(self.sums) {
                *sum += self.factor * x.load();
            }
        }
    }
}

struct Store<'a, N> {
    sums: &'a [f32],
    y: &'a mut [N],
}

impl<N: Number> Kernel for Store<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (sum, y) in self.sums.iter().zip(self.y) {
            *y = N::store(*sum);
        }
    }
}

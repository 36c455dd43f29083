//! Layer normalization.

use super::kernel::{Kernel, multiply_add, run};
use super::number::{Number, same_format};
use super::spread;
use super::sum::row_sum;
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + shift` for each of `rows` rows of `columns` numbers, with the
/// mean and the (biased) variance of the row.
#[allow(clippy::too_many_arguments)]
pub(crate) fn layer_norm(
    isa: Isa,
    rows: usize,
    columns: usize,
    epsilon: f32,
    x: Numbers<'_>,
    scale: &[f32],
    shift: &[f32],
    y: NumbersMut<'_>,
) {
    assert_eq!(scale.len(), columns, "layer_norm: scales");
    assert_eq!(shift.len(), columns, "layer_norm: shifts");
    same_format!("layer_norm", x, y => {
        assert_eq!(x.len(), rows * columns, "layer_norm: numbers of the input");
        assert_eq!(y.len(), rows * columns, "layer_norm: numbers of the output");
        spread::over_rows(y, columns, |first_row, y| {
            run(isa, LayerNorm { x: &x[first_row * columns..][..y.len()], epsilon, scale, shift, y });
        });
    })
}

struct LayerNorm<'a, N> {
    x: &'a [N],
    epsilon: f32,
    scale: &'a [f32],
    shift: &'a [f32],
    y: &'a mut [N],
}

impl<N: Number> Kernel for LayerNorm<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let columns = self.scale.len();
        for (x, y) in self.x.chunks_exact(columns).zip(self.y.chunks_exact_mut(columns)) {
            let mean = (row_sum::<N, FUSED, false>(x, 0.0) / columns as f64) as f32;
            let variance = row_sum::<N, FUSED, true>(x, mean) / columns as f64;
            let factor = (1.0 / (variance + f64::from(self.epsilon)).sqrt()) as f32;
            for (((x, scale), shift), y) in x.iter().zip(self.scale).zip(self.shift).zip(y) {
                *y = N::store(multiply_add::<FUSED>((x.load() - mean) * factor, *scale, *shift));
            }
        }
    }
}

//! Sums of many f32, in a fixed order and without the loss of one long chain of f32 additions.

use super::kernel::multiply_add;
use super::number::Number;

/// Sums that run side by side.
pub(super) const LANES: usize = 64;

/// What is summed: `x`, or `(x - center)^2` if `SQUARED`, added to `sum`.
#[inline(always)]
pub(super) fn add_term<N: Number, const FUSED: bool, const SQUARED: bool>(x: N, center: f32, sum: f32) -> f32 {
    if SQUARED {
        let deviation = x.load() - center;
        multiply_add::<FUSED>(deviation, deviation, sum)
    } else {
        sum + x.load()
    }
}

/// The sum over a row. A lane adds at most 129 terms in f32 before it is added up in f64.
#[inline(always)]
pub(super) fn row_sum<N: Number, const FUSED: bool, const SQUARED: bool>(row: &[N], center: f32) -> f64 {
    let mut total = 0.0;
    for block in row.chunks(128 * LANES) {
        let mut lanes = [0.0f32; LANES];
        let vectors = block.chunks_exact(LANES);
        let rest = vectors.remainder();
        for vector in vectors {
            for (x, lane) in vector.iter().zip(&mut lanes) {
                *lane = add_term::<N, FUSED, SQUARED>(*x, center, *lane);
            }
        }
        for (x, lane) in rest.iter().zip(&mut lanes) {
            *lane = add_term::<N, FUSED, SQUARED>(*x, center, *lane);
        }
        total += lanes_sum(lanes);
    }
    total
}

/// The sum of all lanes by halves, the last eight in f64.
#[inline(always)]
fn lanes_sum(mut lanes: [f32; LANES]) -> f64 {
    for half in [32, 16, 8] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    let mut sums = [0.0f64; 8];
    for lane in 0..8 {
        sums[lane] = f64::from(lanes[lane]);
    }
    for half in [4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    sums[0]
}

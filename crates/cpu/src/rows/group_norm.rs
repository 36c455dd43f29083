//! Group normalization of channels-last images.
//!
//! The numbers of an image are seen as rows of `columns` numbers, some whole pixels each, so that rows are long and
//! mostly whole vectors whatever the number of channels. A column belongs to one channel and so to one group. Three
//! passes: sums, sums of squared deviations, results. The first two give one f64 per group and piece of the image; the
//! pieces are added up in order.

use plimsoll_device::GroupNormShape;

use super::function::{Function, Identity, Silu};
use super::kernel::{Kernel, multiply_add, run};
use super::number::{Number, same_format};
use super::spread;
use super::sum::{LANES, add_term};
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

/// Pieces of an image, at most: their sums are scratch memory.
const PIECES_MAX: usize = 64;
/// Columns of a row, at least, if the image has so many numbers.
const COLUMNS_MIN: usize = 128;
/// Rows added up in registers, then added to the columns' f32 sums.
const BLOCK_ROWS: usize = 32;
/// Rows whose sums may be in f32.
const F32_ROWS: usize = 32 * BLOCK_ROWS;
/// Columns whose sums are held at a time.
const SPAN: usize = 1024;

/// Numbers that [`group_norm`] needs as scratch.
pub(crate) fn group_norm_scratch_len(shape: &GroupNormShape) -> usize {
    let layout = Layout::of(shape);
    let sums_len = layout.pieces * shape.groups;
    // An f64 is two f32; one more may be lost to its alignment.
    shape.batch * (Columns::LEN * layout.columns + 2 * sums_len) + 1
}

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + shift` with the mean and the (biased) variance of the number's
/// group in its image, and `silu` of that if asked; `scratch` has at least [`group_norm_scratch_len`] numbers.
pub(crate) fn group_norm(
    isa: Isa,
    shape: &GroupNormShape,
    x: Numbers<'_>,
    scale: &[f32],
    shift: &[f32],
    y: NumbersMut<'_>,
    scratch: &mut [f32],
) {
    assert!(shape.groups > 0 && shape.channels.is_multiple_of(shape.groups), "group_norm: groups of {shape:?}");
    assert_eq!(scale.len(), shape.channels, "group_norm: scales");
    assert_eq!(shift.len(), shape.channels, "group_norm: shifts");
    assert!(scratch.len() >= group_norm_scratch_len(shape), "group_norm: scratch");
    same_format!("group_norm", x, y => {
        let len = shape.batch * shape.pixels * shape.channels;
        assert_eq!(x.len(), len, "group_norm: numbers of the input");
        assert_eq!(y.len(), len, "group_norm: numbers of the output");
        if len > 0 {
            let weights = Weights { scale, shift };
            match shape.silu {
                true => normalize(isa, shape, Silu, x, weights, y, scratch),
                false => normalize(isa, shape, Identity, x, weights, y, scratch),
            }
        }
    })
}

/// How an image is cut.
#[derive(Clone, Copy)]
struct Layout {
    image_len: usize,
    channels: usize,
    groups: usize,
    /// Numbers in a row, a multiple of `channels`.
    columns: usize,
    /// Numbers in a piece, whole rows.
    piece_len: usize,
    pieces: usize,
}

impl Layout {
    fn of(shape: &GroupNormShape) -> Self {
        let channels = shape.channels.max(1);
        // The fewest pixels that are whole vectors, then as many of these as make a row long enough.
        let whole_pixels = LANES >> channels.trailing_zeros().min(LANES.trailing_zeros());
        let row_pixels = whole_pixels * COLUMNS_MIN.div_ceil(whole_pixels * channels);
        let columns = row_pixels.min(shape.pixels.max(1)) * channels;
        let image_len = shape.pixels * channels;
        let rows = image_len.div_ceil(columns);
        let piece_rows = spread::rows_per_piece(columns).max(rows.div_ceil(PIECES_MAX));
        Self {
            image_len,
            channels,
            groups: shape.groups.max(1),
            columns,
            piece_len: piece_rows * columns,
            pieces: rows.div_ceil(piece_rows),
        }
    }

    fn group_len(&self) -> usize {
        self.channels / self.groups
    }
}

#[derive(Clone, Copy)]
struct Weights<'a> {
    scale: &'a [f32],
    shift: &'a [f32],
}

/// What the numbers of each column go through: `(x - mean) * factor + shift`.
#[derive(Clone, Copy)]
struct Columns<'a> {
    mean: &'a [f32],
    factor: &'a [f32],
    shift: &'a [f32],
}

impl<'a> Columns<'a> {
    /// Numbers per column.
    const LEN: usize = 3;

    /// Finds them in an image's scratch.
    fn of(image: &'a [f32], layout: &Layout) -> Self {
        let (mean, rest) = image.split_at(layout.columns);
        let (factor, shift) = rest.split_at(layout.columns);
        Self { mean, factor, shift }
    }
}

fn normalize<N: Number, F: Function>(
    isa: Isa,
    shape: &GroupNormShape,
    function: F,
    x: &[N],
    weights: Weights<'_>,
    y: &mut [N],
    scratch: &mut [f32],
) {
    let layout = Layout::of(shape);
    let columns_len = Columns::LEN * layout.columns;
    let (columns, sums) = scratch.split_at_mut(shape.batch * columns_len);
    let (_, sums, _) = bytemuck::pod_align_to_mut::<f32, f64>(sums);
    let sums = &mut sums[..shape.batch * layout.pieces * layout.groups];
    let sums_len = layout.pieces * layout.groups;
    let group_count = (shape.pixels * layout.group_len()) as f64;

    add_up::<N, false>(isa, &layout, x, columns, sums);
    for (image, sums) in columns.chunks_exact_mut(columns_len).zip(sums.chunks_exact(sums_len)) {
        for (column, mean) in image[..layout.columns].iter_mut().enumerate() {
            *mean = (total(&layout, sums, column) / group_count) as f32;
        }
    }
    add_up::<N, true>(isa, &layout, x, columns, sums);
    for (image, sums) in columns.chunks_exact_mut(columns_len).zip(sums.chunks_exact(sums_len)) {
        let (factors, shifts) = image[layout.columns..].split_at_mut(layout.columns);
        for (column, (factor, shift)) in factors.iter_mut().zip(shifts).enumerate() {
            let variance = total(&layout, sums, column) / group_count;
            let channel = column % layout.channels;
            *factor = (f64::from(weights.scale[channel]) / (variance + f64::from(shape.epsilon)).sqrt()) as f32;
            *shift = weights.shift[channel];
        }
    }
    let columns = &*columns;
    spread::over_pieces(y, layout.image_len, |image, y| {
        let x = &x[image * layout.image_len..][..layout.image_len];
        let columns = Columns::of(&columns[image * columns_len..][..columns_len], &layout);
        spread::over_pieces(y, layout.piece_len, |piece, y| {
            run(isa, Apply { x: &x[piece * layout.piece_len..][..y.len()], columns, function, y });
        });
    });
}

/// Fills `sums`, `[batch, pieces, groups]`.
fn add_up<N: Number, const SQUARED: bool>(isa: Isa, layout: &Layout, x: &[N], columns: &[f32], sums: &mut [f64]) {
    spread::over_pieces(sums, layout.groups, |idx, sums| {
        let (image, piece) = (idx / layout.pieces, idx % layout.pieces);
        let x = &x[image * layout.image_len..][..layout.image_len];
        let x = &x[piece * layout.piece_len..];
        let x = &x[..x.len().min(layout.piece_len)];
        let mean = &columns[image * Columns::LEN * layout.columns..][..layout.columns];
        run(isa, AddUp::<N, SQUARED> { layout, x, mean, sums });
    });
}

/// The sum over the pieces for the group of `column`.
fn total(layout: &Layout, sums: &[f64], column: usize) -> f64 {
    let group = column % layout.channels / layout.group_len();
    sums.iter().skip(group).step_by(layout.groups).sum()
}

/// Sums of a piece per group: of `x`, or of `(x - mean)^2` if `SQUARED`.
struct AddUp<'a, N, const SQUARED: bool> {
    layout: &'a Layout,
    x: &'a [N],
    mean: &'a [f32],
    sums: &'a mut [f64],
}

impl<N: Number, const SQUARED: bool> Kernel for AddUp<'_, N, SQUARED> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let columns = self.layout.columns;
        self.sums.fill(0.0);
        let mut span_sums = [0.0f32; SPAN];
        for first in (0..columns).step_by(SPAN) {
            let span_sums = &mut span_sums[..SPAN.min(columns - first)];
            let mean = &self.mean[first..][..span_sums.len()];
            for x in self.x.chunks(F32_ROWS * columns) {
                span_sums.fill(0.0);
                for x in x.chunks(BLOCK_ROWS * columns) {
                    add_block::<N, FUSED, SQUARED>(x, columns, first, mean, span_sums);
                }
                add_to_groups(self.layout, first, span_sums, self.sums);
            }
        }
    }
}

/// Adds the rows of a block to the sums of the columns from `first` on.
#[inline(always)]
fn add_block<N: Number, const FUSED: bool, const SQUARED: bool>(
    x: &[N],
    columns: usize,
    first: usize,
    mean: &[f32],
    sums: &mut [f32],
) {
    let rows = x.chunks_exact(columns);
    let last_row = rows.remainder();
    let (sum_vectors, sums_rest) = sums.as_chunks_mut::<LANES>();
    let (mean_vectors, mean_rest) = mean.as_chunks::<LANES>();
    for (vector, (sums, mean)) in sum_vectors.iter_mut().zip(mean_vectors).enumerate() {
        let mut block_sums = [0.0f32; LANES];
        for row in rows.clone() {
            let x = &row[first + vector * LANES..][..LANES];
            for lane in 0..LANES {
                block_sums[lane] = add_term::<N, FUSED, SQUARED>(x[lane], mean[lane], block_sums[lane]);
            }
        }
        for lane in 0..LANES {
            sums[lane] += block_sums[lane];
        }
    }
    let first_rest = first + sum_vectors.len() * LANES;
    for row in rows {
        for ((sum, mean), x) in sums_rest.iter_mut().zip(mean_rest).zip(&row[first_rest..]) {
            *sum = add_term::<N, FUSED, SQUARED>(*x, *mean, *sum);
        }
    }
    for ((sum, mean), x) in sums.iter_mut().zip(mean).zip(last_row.iter().skip(first)) {
        *sum = add_term::<N, FUSED, SQUARED>(*x, *mean, *sum);
    }
}

/// Adds the sums of the columns from `first` on to their groups.
#[inline(always)]
fn add_to_groups(layout: &Layout, first: usize, mut column_sums: &[f32], sums: &mut [f64]) {
    let mut channel = first % layout.channels;
    while !column_sums.is_empty() {
        let group = channel / layout.group_len();
        let left = (group + 1) * layout.group_len() - channel;
        let (of_group, rest) = column_sums.split_at(left.min(column_sums.len()));
        sums[group] += of_group.iter().map(|sum| f64::from(*sum)).sum::<f64>();
        channel = (channel + of_group.len()) % layout.channels;
        column_sums = rest;
    }
}

/// The results of a piece.
struct Apply<'a, N, F> {
    x: &'a [N],
    columns: Columns<'a>,
    function: F,
    y: &'a mut [N],
}

impl<N: Number, F: Function> Kernel for Apply<'_, N, F> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Columns { mean, factor, shift } = self.columns;
        for (x, y) in self.x.chunks(mean.len()).zip(self.y.chunks_mut(mean.len())) {
            for ((((x, y), mean), factor), shift) in x.iter().zip(y).zip(mean).zip(factor).zip(shift) {
                let normal = multiply_add::<FUSED>(x.load() - mean, *factor, *shift);
                *y = N::store(self.function.at::<FUSED>(normal));
            }
        }
    }
}

//! Matrix products with packed weights, and the driver that convolutions share with them.
//!
//! The output is cut into blocks of rows and columns, one task each. A task walks the inner dimension in blocks (at
//! most [`DEPTH_BLOCK_MAX`]) and, within one, panel by panel and tile by tile. Every output number is the bias, plus
//! one sum per inner block, in order; inner blocks depend on the shape only, so the cut into tasks doesn't change a
//! bit.
//!
//! Rows of f32 are read where they are. Rows of bf16, and rows made of very short segments, are first gathered into a
//! small block of f32.

use half::bf16;
use plimsoll_device::{DType, MatmulShape};

use crate::isa::Isa;
use crate::micro::{DEPTH_BLOCK_MAX, Rows, Start, Target, ZERO_ROW, multiply_tile};
use crate::numbers::{Numbers, NumbersMut};
use crate::pack::{packed_len, panel_columns};
use crate::simd::{Element, Simd, WithSimd};
use crate::tasks::{SharedMut, TASK_WORK_MIN, for_each_task, scratch_len};

/// Tiles of rows in a task's block at most: with them, a block of the left matrix stays in the L2 cache.
const BLOCK_TILES_MAX: usize = 24;
/// Columns in a task's block at most.
const BLOCK_COLUMNS_MAX: usize = 512;
/// Segments shorter than this are gathered.
const SEGMENT_LEN_MIN: usize = 16;
/// From so many tiles on, a panel of bf16 is expanded once for all of them.
const EXPAND_TILES_MIN: usize = 3;

/// `y = x w + bias`; `x` is `[rows, depth]`, `w` packed, `y` `[rows, out]`, all of one dtype; `scratch` has
/// [`matmul_scratch_len`] numbers.
///
/// # Panics
/// If a length is wrong: a bug of the caller.
#[allow(clippy::too_many_arguments)]
pub(crate) fn matmul(
    isa: Isa,
    threads: usize,
    shape: &MatmulShape,
    x: Numbers<'_>,
    w: Numbers<'_>,
    bias: Option<&[f32]>,
    y: NumbersMut<'_>,
    scratch: &mut [f32],
) {
    let left = DenseRows { rows: shape.rows, depth: shape.depth };
    multiply(isa, threads, &left, shape.out, x, w, bias, y, scratch);
}

/// Scratch numbers that [`matmul`] needs.
pub(crate) fn matmul_scratch_len(isa: Isa, threads: usize, shape: &MatmulShape, dtype: DType) -> usize {
    multiply_scratch_len(isa, threads, &DenseRows { rows: shape.rows, depth: shape.depth }, shape.out, dtype)
}

/// A left matrix whose rows consist of segments of the input.
pub(crate) trait LeftRows: Sync {
    /// How many rows there are.
    fn rows(&self) -> usize;
    /// Numbers in a segment.
    fn depth(&self) -> usize;
    /// Segments in a row.
    fn segments(&self) -> usize;
    /// Numbers in the input.
    fn input_len(&self) -> usize;
    /// Puts the input offsets of row `first..`'s segments, or [`ZERO_ROW`], into the table
    /// `[tile][segment][row of tile]`, for `row_count` rows. Each offset has `depth` numbers of the input behind it.
    fn fill_offsets(&self, first: usize, row_count: usize, tile_rows: usize, offsets: &mut [u32]);
}

/// A matrix as it lies in memory.
struct DenseRows {
    rows: usize,
    depth: usize,
}

impl LeftRows for DenseRows {
    fn rows(&self) -> usize {
        self.rows
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn segments(&self) -> usize {
        1
    }

    fn input_len(&self) -> usize {
        self.rows * self.depth
    }

    #[inline(always)]
    fn fill_offsets(&self, first: usize, row_count: usize, _tile_rows: usize, offsets: &mut [u32]) {
        for (row, offset) in offsets[..row_count].iter_mut().enumerate() {
            *offset = ((first + row) * self.depth) as u32;
        }
    }
}

/// How a product is cut up.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Rows of a task's block, a multiple of the tile's rows.
    block_rows: usize,
    /// Columns of a task's block, a multiple of a panel's columns.
    block_columns: usize,
    row_blocks: usize,
    column_blocks: usize,
    /// Stretch of the inner dimension that is summed in registers.
    depth_block: usize,
    /// Whether rows are gathered.
    gather: bool,
    /// Scratch numbers for each purpose.
    offsets_len: usize,
    gathered_offsets_len: usize,
    gathered_len: usize,
    sums_len: usize,
    panel_len: usize,
}

impl Cut {
    fn new(isa: Isa, threads: usize, left: &impl LeftRows, out: usize, dtype: DType) -> Self {
        let (tile_rows, panel_columns) = (isa.tile_rows(), panel_columns(isa));
        let tiles = left.rows().div_ceil(tile_rows).max(1);
        let panels = out.div_ceil(panel_columns).max(1);
        let inner = left.depth() * left.segments();
        let task_work_min = TASK_WORK_MIN / (tile_rows * panel_columns * inner.max(1));
        let even = |count: usize, most: usize| count.div_ceil(count.div_ceil(most));
        let mut block_tiles = even(tiles, BLOCK_TILES_MAX);
        let mut block_panels = even(panels, BLOCK_COLUMNS_MAX / panel_columns);
        while threads > 1
            && tiles.div_ceil(block_tiles) * panels.div_ceil(block_panels) < 3 * threads
            && block_tiles * block_panels / 2 > task_work_min
        {
            if block_tiles > 8 || (block_panels == 1 && block_tiles > 1) {
                block_tiles = even(tiles, block_tiles.div_ceil(2));
            } else if block_panels > 1 {
                block_panels = even(panels, block_panels.div_ceil(2));
            } else {
                break;
            }
        }
        let (block_rows, block_columns) = (block_tiles * tile_rows, block_panels * panel_columns);
        let depth_block = inner.div_ceil(inner.div_ceil(DEPTH_BLOCK_MAX).max(1));
        let narrow = dtype != DType::F32;
        let gather = narrow || (left.segments() > 1 && left.depth() < SEGMENT_LEN_MIN);
        Self {
            block_rows,
            block_columns,
            row_blocks: left.rows().div_ceil(block_rows),
            column_blocks: out.div_ceil(block_columns),
            depth_block,
            gather,
            offsets_len: block_rows * left.segments(),
            gathered_offsets_len: if gather { block_rows } else { 0 },
            gathered_len: if gather { block_rows * depth_block } else { 0 },
            sums_len: if narrow { block_rows * block_columns } else { 0 },
            panel_len: if narrow && block_tiles >= EXPAND_TILES_MIN { depth_block * panel_columns } else { 0 },
        }
    }

    fn task_count(&self) -> usize {
        self.row_blocks * self.column_blocks
    }

    fn worker_len(&self) -> usize {
        self.offsets_len + self.gathered_offsets_len + self.gathered_len + self.sums_len + self.panel_len
    }
}

/// Scratch numbers that [`multiply`] needs.
pub(crate) fn multiply_scratch_len(isa: Isa, threads: usize, left: &impl LeftRows, out: usize, dtype: DType) -> usize {
    let cut = Cut::new(isa, threads, left, out, dtype);
    scratch_len(threads, cut.task_count(), cut.worker_len())
}

/// `y = left(x) w + bias`.
///
/// # Panics
/// If a length is wrong or the dtypes differ: a bug of the caller.
#[allow(clippy::too_many_arguments)]
pub(crate) fn multiply(
    isa: Isa,
    threads: usize,
    left: &impl LeftRows,
    out: usize,
    x: Numbers<'_>,
    w: Numbers<'_>,
    bias: Option<&[f32]>,
    y: NumbersMut<'_>,
    scratch: &mut [f32],
) {
    match (x, w, y) {
        (Numbers::F32(x), Numbers::F32(w), NumbersMut::F32(y)) => {
            multiply_numbers(isa, threads, left, out, x, w, bias, y, scratch);
        }
        (Numbers::Bf16(x), Numbers::Bf16(w), NumbersMut::Bf16(y)) => {
            multiply_numbers::<bf16>(isa, threads, left, out, x, w, bias, y, scratch);
        }
        (x, w, y) => panic!("a product of {} and {} into {}", x.dtype(), w.dtype(), y.dtype()),
    }
}

#[allow(clippy::too_many_arguments)]
fn multiply_numbers<E: Element>(
    isa: Isa,
    threads: usize,
    left: &impl LeftRows,
    out: usize,
    x: &[E],
    w: &[E],
    bias: Option<&[f32]>,
    y: &mut [E],
    scratch: &mut [f32],
) {
    let cut = Cut::new(isa, threads, left, out, if E::as_f32(&[]).is_some() { DType::F32 } else { DType::BF16 });
    assert_eq!(x.len(), left.input_len(), "numbers of the input");
    assert!(x.len() < ZERO_ROW as usize, "an input of {} numbers is too long", x.len());
    assert_eq!(w.len(), packed_len(isa, out, left.depth(), left.segments()), "numbers of the packed weights");
    assert!(bias.is_none_or(|bias| bias.len() == out), "numbers of the bias");
    assert_eq!(y.len(), left.rows() * out, "numbers of the output");
    let y = SharedMut::new(y);
    for_each_task(threads, cut.task_count(), scratch, cut.worker_len(), |task_idx, scratch| {
        let first_row = task_idx / cut.column_blocks * cut.block_rows;
        let first_column = task_idx % cut.column_blocks * cut.block_columns;
        isa.run(BlockTask {
            cut: &cut,
            left,
            x,
            w,
            bias,
            y: &y,
            out,
            first_row,
            row_count: cut.block_rows.min(left.rows() - first_row),
            first_column,
            column_count: cut.block_columns.min(out - first_column),
            scratch,
        });
    });
}

/// One block of the output.
struct BlockTask<'a, L, E> {
    cut: &'a Cut,
    left: &'a L,
    x: &'a [E],
    w: &'a [E],
    bias: Option<&'a [f32]>,
    y: &'a SharedMut<'a, E>,
    out: usize,
    first_row: usize,
    row_count: usize,
    first_column: usize,
    column_count: usize,
    scratch: &'a mut [f32],
}

impl<L: LeftRows, E: Element> WithSimd for BlockTask<'_, L, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (cut, left) = (self.cut, self.left);
        let inner = left.depth() * left.segments();
        let (offsets, scratch) = self.scratch.split_at_mut(cut.offsets_len);
        let (gathered_offsets, scratch) = scratch.split_at_mut(cut.gathered_offsets_len);
        let (gathered, scratch) = scratch.split_at_mut(cut.gathered_len);
        let (sums, scratch) = scratch.split_at_mut(cut.sums_len);
        let expanded = &mut scratch[..cut.panel_len];
        let offsets: &mut [u32] = bytemuck::cast_slice_mut(offsets);
        let gathered_offsets: &mut [u32] = bytemuck::cast_slice_mut(gathered_offsets);
        left.fill_offsets(self.first_row, self.row_count, S::TILE_ROWS, offsets);
        for (row, offset) in gathered_offsets.iter_mut().enumerate() {
            *offset = (row * cut.depth_block) as u32;
        }

        // f32 sums go where they belong; others wait in scratch until they are complete.
        let narrow = E::as_f32(self.x).is_none();
        let (sums_start, sums_stride) = if narrow {
            (sums.as_mut_ptr(), cut.block_columns)
        } else {
            (self.y.get(self.first_row * self.out + self.first_column).cast::<f32>(), self.out)
        };
        let mut from = 0;
        loop {
            let to = (from + cut.depth_block).min(inner);
            let rows = match E::as_f32(self.x) {
                Some(numbers) if !cut.gather => {
                    Rows { numbers, offsets, depth: left.depth().max(1), segments: left.segments() }
                }
                _ => {
                    let source = Segments { numbers: self.x, offsets, depth: left.depth(), segments: left.segments() };
                    for row in 0..self.row_count {
                        source.gather(simd, row, from, &mut gathered[row * cut.depth_block..][..to - from]);
                    }
                    Rows { numbers: gathered, offsets: gathered_offsets, depth: cut.depth_block.max(1), segments: 1 }
                }
            };
            let stretch = if cut.gather { (0, to - from) } else { (from, to) };
            for column in (0..self.column_count).step_by(2 * S::LANES) {
                let panel_idx = (self.first_column + column) / (2 * S::LANES);
                let panel = &self.w[(panel_idx * inner + from) * 2 * S::LANES..][..(to - from) * 2 * S::LANES];
                let base = match self.bias {
                    _ if from > 0 => Start::Stored,
                    Some(bias) => Start::Bias(bias[self.first_column + column..].as_ptr()),
                    None => Start::Zero,
                };
                let target = Target {
                    start: sums_start.wrapping_add(column),
                    stride: sums_stride,
                    columns: (2 * S::LANES).min(self.column_count - column),
                    base,
                };
                // SAFETY: offsets have been filled for these rows and lie within `rows.numbers`; the panel's length
                // was checked above; the target is this task's block of `y` or of its own scratch.
                unsafe {
                    if expanded.is_empty() {
                        multiply_panel(simd, &rows, self.row_count, stretch, panel, target);
                    } else {
                        let expanded = &mut expanded[..panel.len()];
                        expand(simd, panel, expanded);
                        multiply_panel(simd, &rows, self.row_count, stretch, expanded, target);
                    }
                }
            }
            from = to;
            if from >= inner {
                break;
            }
        }
        if narrow {
            for row in 0..self.row_count {
                let sums = &sums[row * cut.block_columns..][..self.column_count];
                let start = (self.first_row + row) * self.out + self.first_column;
                // SAFETY: these numbers of `y` belong to this task's block alone, and lie within it.
                let y = unsafe { std::slice::from_raw_parts_mut(self.y.get(start), self.column_count) };
                for (y, sums) in y.chunks_mut(S::LANES).zip(sums.chunks(S::LANES)) {
                    E::store(simd, y, f32::load(simd, sums));
                }
            }
        }
    }
}

/// All rows of a block times one panel.
///
/// # Safety
/// As for [`multiply_tile`], for all tiles of `row_count` rows.
#[inline(always)]
unsafe fn multiply_panel<S: Simd, B: Element>(
    simd: S,
    rows: &Rows<'_>,
    row_count: usize,
    stretch: (usize, usize),
    panel: &[B],
    target: Target,
) {
    for (tile_idx, row) in (0..row_count).step_by(S::TILE_ROWS).enumerate() {
        let tile_target = Target { start: target.start.wrapping_add(row * target.stride), ..target };
        let tile_rows = S::TILE_ROWS.min(row_count - row);
        // SAFETY: the caller promises it for each tile.
        unsafe { multiply_tile(simd, rows, tile_idx, tile_rows, stretch, panel.as_ptr(), tile_target) };
    }
}

/// A panel as f32.
#[inline(always)]
fn expand<S: Simd, E: Element>(simd: S, panel: &[E], expanded: &mut [f32]) {
    for (from, to) in panel.chunks_exact(S::LANES).zip(expanded.chunks_exact_mut(S::LANES)) {
        f32::store(simd, to, E::load(simd, from));
    }
}

/// Rows of segments, in the input's own format.
struct Segments<'a, E> {
    numbers: &'a [E],
    offsets: &'a [u32],
    depth: usize,
    segments: usize,
}

impl<E: Element> Segments<'_, E> {
    /// Numbers `from..` of a row, as f32.
    #[inline(always)]
    fn gather<S: Simd>(&self, simd: S, row: usize, from: usize, mut to: &mut [f32]) {
        let (tile_idx, tile_row) = (row / S::TILE_ROWS, row % S::TILE_ROWS);
        let offset_of = tile_idx * self.segments * S::TILE_ROWS + tile_row;
        let mut segment = from / self.depth.max(1);
        let mut d = from % self.depth.max(1);
        while !to.is_empty() {
            let offset = self.offsets[offset_of + segment * S::TILE_ROWS];
            segment += 1;
            let mut len = self.depth - d;
            // Neighboring pixels are one stretch.
            while len < to.len()
                && offset != ZERO_ROW
                && self.offsets[offset_of + segment * S::TILE_ROWS] as usize == offset as usize + d + len
            {
                len += self.depth;
                segment += 1;
            }
            let (part, rest) = to.split_at_mut(len.min(to.len()));
            if offset == ZERO_ROW {
                part.fill(0.0);
            } else {
                let numbers = &self.numbers[offset as usize + d..][..part.len()];
                for (part, numbers) in part.chunks_mut(S::LANES).zip(numbers.chunks(S::LANES)) {
                    f32::store(simd, part, E::load(simd, numbers));
                }
            }
            (to, d) = (rest, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_device::ConvShape;

    use super::*;
    use crate::naive::{self, Owned, Seeded, in_pool, isas, scratch};

    fn check(isa: Isa, threads: usize, shape: MatmulShape, dtype: DType, with_bias: bool) -> Owned {
        let MatmulShape { rows, depth, out } = shape;
        let mut seeded = Seeded::new((rows * 31 + depth) as u32);
        let (x, w, bias) = (seeded.numbers(rows * depth), seeded.numbers(out * depth), seeded.numbers(out));
        let bias = with_bias.then_some(&bias[..]);
        let packed = Owned::packed(isa, dtype, &w, out, depth, 1);
        let x_owned = Owned::new(dtype, &x);
        let mut y = Owned::new(dtype, &vec![f32::NAN; rows * out]);
        let mut scratch = scratch(matmul_scratch_len(isa, threads, &shape, dtype));
        in_pool(threads, || {
            matmul(isa, threads, &shape, x_owned.numbers(), packed.numbers(), bias, y.numbers_mut(), &mut scratch);
        });
        // A product is the convolution of one line of pixels with a single tap.
        let line = ConvShape {
            batch: 1,
            input: [1, rows],
            resized: [1, rows],
            in_channels: depth,
            out_channels: out,
            kernel: [1, 1],
            stride: 1,
            dilation: 1,
            padding: [0; 4],
        };
        naive::assert_close(&y, &naive::conv2d(&line, &x, &w, bias), &format!("{isa} {dtype} {shape:?}"));
        y
    }

    #[test]
    fn products_of_all_sizes_agree_with_plain_loops() {
        let mut seeded = Seeded::new(1);
        for case in 0..60 {
            let shape = MatmulShape { rows: seeded.size(1..=70), depth: seeded.size(1..=70), out: seeded.size(1..=70) };
            for isa in isas() {
                for dtype in [DType::F32, DType::BF16] {
                    check(isa, 1, shape, dtype, case % 2 == 0);
                }
            }
        }
    }

    #[test]
    fn long_inner_dimensions_and_many_blocks_agree_with_plain_loops() {
        for isa in isas() {
            for dtype in [DType::F32, DType::BF16] {
                for (rows, depth, out) in [(3, DEPTH_BLOCK_MAX + 1, 40), (2, 2000, 33), (300, 385, 50), (13, 70, 530)] {
                    check(isa, 1, MatmulShape { rows, depth, out }, dtype, true);
                }
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        for isa in isas() {
            for dtype in [DType::F32, DType::BF16] {
                for (rows, depth, out) in [(257, 400, 130), (2, 1290, 1300), (1000, 33, 20)] {
                    let shape = MatmulShape { rows, depth, out };
                    let bits = check(isa, 1, shape, dtype, true).bits();
                    for threads in [2, 3, 7] {
                        assert_eq!(check(isa, threads, shape, dtype, true).bits(), bits, "{isa} {dtype} {shape:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn infinity_times_zero_is_not_skipped() {
        for isa in isas() {
            for dtype in [DType::F32, DType::BF16] {
                let shape = MatmulShape { rows: 2, depth: 3, out: 2 };
                let packed = Owned::packed(isa, dtype, &[0.0, 1.0, 0.0, 1.0, 1.0, 1.0], 2, 3, 1);
                let x = Owned::new(dtype, &[f32::INFINITY, 1.0, 1.0, 1.0, f32::NAN, 1.0]);
                let mut y = Owned::new(dtype, &[0.0; 4]);
                let mut scratch = scratch(matmul_scratch_len(isa, 1, &shape, dtype));
                matmul(isa, 1, &shape, x.numbers(), packed.numbers(), None, y.numbers_mut(), &mut scratch);
                let y = y.to_f32();
                assert!(y[0].is_nan() && y[1] == f32::INFINITY && y[2].is_nan() && y[3].is_nan(), "{isa}: {y:?}");
            }
        }
    }

    #[test]
    fn a_product_over_nothing_is_the_bias() {
        for isa in isas() {
            let shape = MatmulShape { rows: 2, depth: 0, out: 3 };
            let mut y = [f32::NAN; 6];
            let mut scratch = scratch(matmul_scratch_len(isa, 1, &shape, DType::F32));
            let (x, w) = (Numbers::F32(&[]), Numbers::F32(&[]));
            matmul(isa, 1, &shape, x, w, Some(&[1.0, 2.0, 3.0]), NumbersMut::F32(&mut y), &mut scratch);
            assert_eq!(y, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        }
    }
}

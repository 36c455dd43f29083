//! The micro-kernel: a tile of a few rows times one panel of packed columns, summed in registers.

use crate::simd::{Element, Simd};

/// The longest stretch of the inner dimension that is summed in registers, so that a panel's stretch stays in the L1
/// cache while the rows pass by.
pub(crate) const DEPTH_BLOCK_MAX: usize = 384;

/// Stands for a row of zeros (padding) in a table of offsets.
pub(crate) const ZERO_ROW: u32 = u32::MAX;

static ZEROS: [f32; DEPTH_BLOCK_MAX] = [0.0; DEPTH_BLOCK_MAX];

/// The left matrix of a product, by reference: row `r` consists of segments of `depth` numbers that may lie anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// What the offsets refer to.
    pub(crate) numbers: &'a [f32],
    /// Where the segments start, or [`ZERO_ROW`]: `[tile][segment][row of tile]`.
    pub(crate) offsets: &'a [u32],
    /// Numbers of a segment.
    pub(crate) depth: usize,
    /// Segments of a row.
    pub(crate) segments: usize,
}

/// What a tile's sums are added to before they are stored.
#[derive(Clone, Copy)]
pub(crate) enum Start {
    /// Nothing.
    Zero,
    /// A number per column.
    Bias(*const f32),
    /// What is stored there.
    Stored,
}

/// Where a tile is stored.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// Its first number.
    pub(crate) start: *mut f32,
    /// From row to row.
    pub(crate) stride: usize,
    /// How many of the panel's columns there are.
    pub(crate) columns: usize,
    /// What is added.
    pub(crate) base: Start,
}

/// Multiplies stretch `from..to` of `row_count` rows (those of tile `tile_idx`) by `panel`, which starts at `from`.
///
/// # Safety
/// - `1 <= row_count <= S::TILE_ROWS`, `to <= rows.depth * rows.segments`.
/// - The offsets of the tile exist and have `depth` numbers behind them, or are [`ZERO_ROW`] and
///   `to - from <= DEPTH_BLOCK_MAX`.
/// - `panel` holds `to - from` lines of `2 * LANES` numbers.
/// - `target` can be written (and read, for [`Start::Stored`]) at `row_count` rows of `columns` numbers, a bias has
///   `columns`, and `1 <= columns <= 2 * LANES`.
#[inline(always)]
pub(crate) unsafe fn multiply_tile<S: Simd, B: Element>(
    simd: S,
    rows: &Rows<'_>,
    tile_idx: usize,
    row_count: usize,
    (from, to): (usize, usize),
    panel: *const B,
    target: Target,
) {
    macro_rules! by_row_count {
        ($($count:literal)*) => {
            match row_count {
                // SAFETY: the caller's promises are the same.
                $($count if $count <= S::TILE_ROWS => unsafe {
                    tile::<S, B, $count>(simd, rows, tile_idx, (from, to), panel, target)
                },)*
                _ => unreachable!("a tile of {row_count} rows"),
            }
        };
    }
    by_row_count!(1 2 3 4 5 6 7 8)
}

/// [`multiply_tile`] for `R` rows, with the same promises.
#[inline(always)]
unsafe fn tile<S: Simd, B: Element, const R: usize>(
    simd: S,
    rows: &Rows<'_>,
    tile_idx: usize,
    (from, to): (usize, usize),
    panel: *const B,
    target: Target,
) {
    let mut sums = [[simd.zero(); 2]; R];
    let mut panel = panel;
    let mut segment = from / rows.depth;
    let mut d = from % rows.depth;
    let mut left = to - from;
    while left > 0 {
        let len = left.min(rows.depth - d);
        let offsets = &rows.offsets[(tile_idx * rows.segments + segment) * S::TILE_ROWS..][..R];
        let mut starts = [ZEROS.as_ptr(); R];
        for (start, offset) in starts.iter_mut().zip(offsets) {
            if *offset != ZERO_ROW {
                *start = rows.numbers.as_ptr().wrapping_add(*offset as usize + d);
            }
        }
        // SAFETY: `len` numbers can be read from each start: the rest of a segment, or zeros, of which there are
        // DEPTH_BLOCK_MAX; and `len` lines are left of the panel.
        panel = unsafe { accumulate(simd, &starts, panel, len, &mut sums) };
        left -= len;
        segment += 1;
        d = 0;
    }
    // SAFETY: the caller promises the target.
    unsafe { store(simd, &sums, target) };
}

/// Adds the product of `len` numbers of each row and `len` lines of the panel. Returns the next line.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn accumulate<S: Simd, B: Element, const R: usize>(
    simd: S,
    starts: &[*const f32; R],
    mut panel: *const B,
    len: usize,
    sums: &mut [[S::V; 2]; R],
) -> *const B {
    for k in 0..len {
        // SAFETY: the caller promises `len` lines of two vectors.
        let (b0, b1) = unsafe { (B::load_from(simd, panel), B::load_from(simd, panel.add(S::LANES))) };
        for r in 0..R {
            // SAFETY: the caller promises `len` numbers in each row.
            let a = simd.splat(unsafe { *starts[r].add(k) });
            sums[r][0] = simd.fma(a, b0, sums[r][0]);
            sums[r][1] = simd.fma(a, b1, sums[r][1]);
        }
        panel = panel.wrapping_add(2 * S::LANES);
    }
    panel
}

/// Stores a tile.
///
/// # Safety
/// As for [`multiply_tile`].
#[inline(always)]
unsafe fn store<S: Simd, const R: usize>(simd: S, sums: &[[S::V; 2]; R], target: Target) {
    let counts = [target.columns.min(S::LANES), target.columns.saturating_sub(S::LANES)];
    for (r, row) in sums.iter().enumerate() {
        for (half, sum) in row.iter().enumerate() {
            if counts[half] == 0 {
                continue;
            }
            let to = target.start.wrapping_add(r * target.stride + half * S::LANES);
            // SAFETY: the caller promises `columns` numbers in each of `R` rows, and in the bias; `counts` splits
            // them into vectors.
            unsafe {
                let base = match target.base {
                    Start::Zero => simd.zero(),
                    Start::Bias(bias) => load(simd, bias.wrapping_add(half * S::LANES), counts[half]),
                    Start::Stored => load(simd, to, counts[half]),
                };
                let sum = simd.add(base, *sum);
                if counts[half] == S::LANES { simd.store(to, sum) } else { simd.store_partial(to, counts[half], sum) }
            }
        }
    }
}

/// # Safety
/// `count <= LANES` numbers can be read from `from`.
#[inline(always)]
unsafe fn load<S: Simd>(simd: S, from: *const f32, count: usize) -> S::V {
    // SAFETY: the caller's promise is the same.
    unsafe { if count == S::LANES { simd.load(from) } else { simd.load_partial(from, count) } }
}

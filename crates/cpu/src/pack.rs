//! The packed layout of weight matrices: panels of output columns, ready for the micro-kernel.
//!
//! A matrix stored as `[out, depth, taps]` becomes `[panel][tap * depth + d][column]`: each panel holds
//! [`panel_columns`] outputs, the last one padded with zeros. The stored rows of one panel are contiguous, so a panel
//! can be packed as soon as they have arrived.

use std::ops::Range;

use half::bf16;
use plimsoll_device::DType;

use crate::isa::Isa;
use crate::numbers::{NumbersMut, stored_number};
use crate::simd::{Element, MAX_LANES, Simd, WithSimd};

/// Numbers of each row that are converted together, a multiple of 8.
const CHUNK: usize = 64;

/// The most bf16 numbers of each row that are rearranged together, a multiple of 8: those of 8 depths of up to 16 taps.
const REARRANGED_MAX: usize = 128;

/// Output columns of one panel.
pub(crate) const fn panel_columns(isa: Isa) -> usize {
    2 * isa.lanes()
}

/// Numbers in one packed panel.
pub(crate) const fn panel_len(isa: Isa, depth: usize, taps: usize) -> usize {
    panel_columns(isa) * depth * taps
}

/// Numbers in a packed matrix.
pub(crate) const fn packed_len(isa: Isa, out: usize, depth: usize, taps: usize) -> usize {
    out.div_ceil(panel_columns(isa)) * panel_len(isa, depth, taps)
}

/// Packs a whole matrix from its stored bytes, `out * depth * taps` little-endian numbers of `source_dtype`.
///
/// # Panics
/// If a length is wrong: a bug of the caller.
#[cfg(test)]
pub(crate) fn pack(
    isa: Isa,
    source: &[u8],
    source_dtype: DType,
    depth: usize,
    taps: usize,
    mut packed: NumbersMut<'_>,
) {
    let source_panel_bytes = panel_columns(isa) * depth * taps * source_dtype.size();
    let panel_len = panel_len(isa, depth, taps);
    if panel_len == 0 {
        return;
    }
    assert_eq!(packed.len() / panel_len, source.len().div_ceil(source_panel_bytes), "panels of the packed matrix");
    for (panel_idx, panel_source) in source.chunks(source_panel_bytes).enumerate() {
        let range = panel_idx * panel_len..(panel_idx + 1) * panel_len;
        let panel = match &mut packed {
            NumbersMut::F32(packed) => NumbersMut::F32(&mut packed[range]),
            NumbersMut::Bf16(packed) => NumbersMut::Bf16(&mut packed[range]),
        };
        pack_panel(isa, panel_source, source_dtype, depth, taps, panel);
    }
}

/// Packs one panel from the stored bytes of its rows: [`panel_columns`] of them, or fewer for the last panel.
///
/// # Panics
/// If a length is wrong: a bug of the caller.
pub(crate) fn pack_panel(
    isa: Isa,
    source: &[u8],
    source_dtype: DType,
    depth: usize,
    taps: usize,
    panel: NumbersMut<'_>,
) {
    let row_bytes = depth * taps * source_dtype.size();
    assert_eq!(panel.len(), panel_len(isa, depth, taps), "numbers of a packed panel");
    assert!(
        source.len().is_multiple_of(row_bytes) && source.len() <= panel_columns(isa) * row_bytes,
        "{} source bytes for rows of {row_bytes}",
        source.len()
    );
    let rows = Rows { source, dtype: source_dtype, depth, taps };
    match panel {
        NumbersMut::F32(panel) => isa.run(Convert { rows, panel }),
        NumbersMut::Bf16(panel) if source_dtype == DType::BF16 && cfg!(target_endian = "little") => {
            isa.run(Rearrange { rows, panel });
        }
        NumbersMut::Bf16(panel) => isa.run(Convert { rows, panel }),
    }
}

/// The stored rows of one panel: `depth * taps` numbers each.
#[derive(Clone, Copy)]
struct Rows<'a> {
    source: &'a [u8],
    dtype: DType,
    depth: usize,
    taps: usize,
}

impl Rows<'_> {
    fn row_len(&self) -> usize {
        self.depth * self.taps
    }

    fn row_count(&self) -> usize {
        self.source.len() / (self.row_len() * self.dtype.size())
    }

    /// Numbers of a row, as they are stored.
    #[inline(always)]
    fn stored(&self, row: usize, numbers: Range<usize>) -> &[u8] {
        self.stored_from_to(row, row, numbers)
    }

    /// All that is stored from the first of `numbers` in one row to the last of them in another.
    #[inline(always)]
    fn stored_from_to(&self, first_row: usize, last_row: usize, numbers: Range<usize>) -> &[u8] {
        let (row_len, size) = (self.row_len(), self.dtype.size());
        &self.source[(first_row * row_len + numbers.start) * size..(last_row * row_len + numbers.end) * size]
    }

    /// 8 rows of 8 numbers of which some may not be there: zeros stand for them.
    fn copy_part(&self, first_row: usize, numbers: Range<usize>, block: &mut [u16; 64]) {
        block.fill(0);
        for (row, block) in (first_row..self.row_count()).zip(block.chunks_exact_mut(8)) {
            for (number, bytes) in block.iter_mut().zip(self.stored(row, numbers.clone()).chunks_exact(2)) {
                *number = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
    }
}

/// Packs from one format to another.
struct Convert<'a, E> {
    rows: Rows<'a>,
    panel: &'a mut [E],
}

impl<E: Element> WithSimd for Convert<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { rows, panel } = self;
        let columns = 2 * S::LANES;
        let mut converted = [0.0f32; 8 * CHUNK];
        let mut lines = [0.0f32; CHUNK * 2 * MAX_LANES];
        let (mut d, mut tap) = (0, 0);
        for start in (0..rows.row_len()).step_by(CHUNK) {
            let chunk = start..rows.row_len().min(start + CHUNK);
            for first_row in (0..columns).step_by(8) {
                for (row, numbers) in (first_row..first_row + 8).zip(converted.chunks_exact_mut(CHUNK)) {
                    if row < rows.row_count() {
                        convert(simd, rows.stored(row, chunk.clone()), rows.dtype, &mut numbers[..chunk.len()]);
                    } else {
                        numbers.fill(0.0);
                    }
                }
                for number in (0..chunk.len()).step_by(8) {
                    let (from, to) = (converted[number..].as_ptr(), lines[number * columns + first_row..].as_mut_ptr());
                    // SAFETY: `number + 8 <= CHUNK` and `first_row + 8 <= columns`, so the 8 rows of 8 numbers lie
                    // within the arrays.
                    unsafe { simd.transpose_8x8(from, CHUNK, to, columns) };
                }
            }
            for line in lines.chunks_exact(columns).take(chunk.len()) {
                let to = &mut panel[(tap * rows.depth + d) * columns..][..columns];
                E::store(simd, to, f32::load(simd, line));
                E::store(simd, &mut to[S::LANES..], f32::load(simd, &line[S::LANES..]));
                tap += 1;
                if tap == rows.taps {
                    (d, tap) = (d + 1, 0);
                }
            }
        }
    }
}

/// Packs bf16 as it is: half the time of [`Convert`].
struct Rearrange<'a> {
    rows: Rows<'a>,
    panel: &'a mut [bf16],
}

impl WithSimd for Rearrange<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { rows, panel } = self;
        let columns = 2 * S::LANES;
        let mut block = [0u16; 64];
        let mut lines = [bf16::ZERO; REARRANGED_MAX * 2 * MAX_LANES];
        let chunk_len = chunk_len(rows.taps);
        for start in (0..rows.row_len()).step_by(chunk_len) {
            let chunk = start..rows.row_len().min(start + chunk_len);
            for first_row in (0..columns).step_by(8) {
                for number in (0..chunk.len()).step_by(8) {
                    let to = lines[number * columns + first_row..].as_mut_ptr().cast();
                    let numbers = chunk.start + number..chunk.end.min(chunk.start + number + 8);
                    let (from, stride) = if numbers.len() == 8 && first_row + 8 <= rows.row_count() {
                        (rows.stored_from_to(first_row, first_row + 7, numbers).as_ptr().cast(), rows.row_len())
                    } else {
                        rows.copy_part(first_row, numbers, &mut block);
                        (block.as_ptr(), 8)
                    };
                    // SAFETY: 8 rows of 8 numbers lie at `from`: in the slice of the source that begins with the first and
                    // ends with the last, or in `block`. There is room for them in `lines`: `number + 8 <=
                    // REARRANGED_MAX` and `first_row + 8 <= columns`.
                    unsafe { simd.transpose_8x8_bf16(from, stride, to, columns) };
                }
            }
            place(&lines, columns, chunk, &rows, panel);
        }
    }
}

/// Numbers of a row that [`Rearrange`] handles together: of whole depths, where that fits, so that the lines of each tap
/// follow on one another in the panel.
const fn chunk_len(taps: usize) -> usize {
    if 8 * taps <= REARRANGED_MAX { REARRANGED_MAX / (8 * taps) * 8 * taps } else { REARRANGED_MAX }
}

/// Puts the lines of a chunk of row numbers in their places in the panel: the number `d * taps + tap` goes to the line
/// `tap * depth + d`.
#[inline(always)]
fn place(lines: &[bf16], columns: usize, chunk: Range<usize>, rows: &Rows<'_>, panel: &mut [bf16]) {
    let &Rows { depth, taps, .. } = rows;
    if taps == 1 {
        panel[chunk.start * columns..chunk.end * columns].copy_from_slice(&lines[..chunk.len() * columns]);
        return;
    }
    for tap in 0..taps {
        let mut number = chunk.start + (tap + taps - chunk.start % taps) % taps;
        let mut to = (tap * depth + number / taps) * columns;
        while number < chunk.end {
            let line = &lines[(number - chunk.start) * columns..][..columns];
            panel[to..to + columns].copy_from_slice(line);
            (number, to) = (number + taps, to + columns);
        }
    }
}

/// Little-endian bytes of `dtype` to f32; `bytes` holds as many numbers as `numbers`.
#[inline(always)]
fn convert<S: Simd>(simd: S, bytes: &[u8], dtype: DType, numbers: &mut [f32]) {
    assert_eq!(bytes.len(), numbers.len() * dtype.size(), "bytes of the numbers to convert");
    let vector_bytes = S::LANES * dtype.size();
    let whole = if cfg!(target_endian = "little") { numbers.len() / S::LANES } else { 0 };
    for vector in 0..whole {
        let from = bytes[vector * vector_bytes..][..vector_bytes].as_ptr();
        // SAFETY: `vector_bytes` bytes can be read from `from`, at any alignment.
        let value = unsafe {
            match dtype {
                DType::F32 => simd.load(from.cast()),
                DType::BF16 => simd.load_bf16(from.cast()),
                DType::F16 => simd.load_f16(from.cast()),
            }
        };
        f32::store(simd, &mut numbers[vector * S::LANES..], value);
    }
    let done = whole * S::LANES;
    for (number, bytes) in numbers[done..].iter_mut().zip(bytes[done * dtype.size()..].chunks_exact(dtype.size())) {
        *number = stored_number(dtype, bytes);
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::naive::isas;

    /// Numbers that all three formats hold exactly.
    fn exact(idx: usize) -> f32 {
        ((idx * 37) % 251) as f32 - 125.0
    }

    fn stored(dtype: DType, len: usize) -> Vec<u8> {
        let numbers = (0..len).map(exact);
        match dtype {
            DType::F32 => numbers.flat_map(f32::to_le_bytes).collect(),
            DType::BF16 => numbers.flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect(),
            DType::F16 => numbers.flat_map(|number| f16::from_f32(number).to_le_bytes()).collect(),
        }
    }

    #[test]
    fn every_number_lands_in_its_place_and_the_rest_is_zero() {
        for isa in isas() {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                for (out, depth, taps) in [
                    (1, 1, 1),
                    (16, 64, 1),
                    (17, 65, 1),
                    (64, 300, 1),
                    (33, 7, 9),
                    (70, 40, 9),
                    (64, 21, 16),
                    (5, 3, 25),
                    (36, 12, 25),
                ] {
                    let source = stored(dtype, out * depth * taps);
                    let mut packed = vec![f32::NAN; packed_len(isa, out, depth, taps)];
                    let mut packed_bf16 = vec![bf16::NAN; packed.len()];
                    pack(isa, &source, dtype, depth, taps, NumbersMut::F32(&mut packed));
                    pack(isa, &source, dtype, depth, taps, NumbersMut::Bf16(&mut packed_bf16));
                    let columns = panel_columns(isa);
                    for (idx, number) in packed.iter().enumerate() {
                        let (line, column) = (idx / columns, idx % columns);
                        let (panel, k) = (line / (depth * taps), line % (depth * taps));
                        let (tap, d) = (k / depth, k % depth);
                        let row = panel * columns + column;
                        let expected = if row < out { exact((row * depth + d) * taps + tap) } else { 0.0 };
                        assert_eq!(*number, expected, "{isa} {dtype} {out} {depth} {taps} {idx}");
                        assert_eq!(packed_bf16[idx].to_f32(), expected, "{isa} {dtype} {out} {depth} {taps} {idx}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_rounded_to_nearest_even() {
        let source: Vec<u8> =
            [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -3.0e38, f32::NAN].into_iter().flat_map(f32::to_le_bytes).collect();
        let mut packed = vec![bf16::ZERO; packed_len(Isa::Portable, 1, 4, 1)];
        pack(Isa::Portable, &source, DType::F32, 4, 1, NumbersMut::Bf16(&mut packed));
        let column: Vec<f32> = packed.chunks(panel_columns(Isa::Portable)).map(|line| line[0].to_f32()).collect();
        assert_eq!(column[..2], [1.0, 1.015_625]);
        assert_eq!(packed[2 * panel_columns(Isa::Portable)], bf16::from_f32(-3.0e38));
        assert!(column[3].is_nan());
    }
}

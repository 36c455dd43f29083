//! The packed layout of weight matrices: panels of output columns, ready for the micro-kernel.
//!
//! A matrix stored as `[out, depth, taps]` becomes `[panel][tap * depth + d][column]`: each panel holds
//! [`panel_columns`] outputs, the last one padded with zeros. The stored rows of one panel are contiguous, so a panel
//! can be packed as soon as they have arrived.

use half::bf16;
use plimsoll_device::DType;

use crate::isa::Isa;
use crate::numbers::{NumbersMut, stored_number};
use crate::simd::{Element, MAX_LANES, Simd, WithSimd};

/// Numbers of each row that are converted together, a multiple of 8.
const CHUNK: usize = 64;

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
    match panel {
        NumbersMut::F32(panel) => isa.run(PackPanel { source, source_dtype, depth, taps, panel }),
        NumbersMut::Bf16(panel) => isa.run(PackPanel::<bf16> { source, source_dtype, depth, taps, panel }),
    }
}

struct PackPanel<'a, E> {
    source: &'a [u8],
    source_dtype: DType,
    depth: usize,
    taps: usize,
    panel: &'a mut [E],
}

impl<E: Element> WithSimd for PackPanel<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let columns = 2 * S::LANES;
        let row_len = self.depth * self.taps;
        let size = self.source_dtype.size();
        let row_count = self.source.len() / (row_len * size);
        let mut rows = [0.0f32; 8 * CHUNK];
        let mut lines = [0.0f32; CHUNK * 2 * MAX_LANES];
        let (mut d, mut tap) = (0, 0);
        for start in (0..row_len).step_by(CHUNK) {
            let len = CHUNK.min(row_len - start);
            for first_row in (0..columns).step_by(8) {
                for (row, numbers) in (first_row..first_row + 8).zip(rows.chunks_exact_mut(CHUNK)) {
                    if row < row_count {
                        let source = &self.source[(row * row_len + start) * size..][..len * size];
                        convert(simd, source, self.source_dtype, &mut numbers[..len]);
                    } else {
                        numbers.fill(0.0);
                    }
                }
                for column in (0..len).step_by(8) {
                    let (from, to) = (rows[column..].as_ptr(), lines[column * columns + first_row..].as_mut_ptr());
                    // SAFETY: `column + 8 <= CHUNK` and `first_row + 8 <= columns`, so the 8 rows of 8 numbers lie
                    // within the arrays.
                    unsafe { simd.transpose_8x8(from, CHUNK, to, columns) };
                }
            }
            for line in lines.chunks_exact(columns).take(len) {
                let to = &mut self.panel[(tap * self.depth + d) * columns..][..columns];
                E::store(simd, to, f32::load(simd, line));
                E::store(simd, &mut to[S::LANES..], f32::load(simd, &line[S::LANES..]));
                tap += 1;
                if tap == self.taps {
                    (d, tap) = (d + 1, 0);
                }
            }
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
                for (out, depth, taps) in [(1, 1, 1), (16, 64, 1), (17, 65, 1), (33, 7, 9), (70, 40, 9), (5, 3, 25)] {
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

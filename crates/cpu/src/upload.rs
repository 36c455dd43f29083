//! Copying stored weights in: converted, and packed for the kernels.
//!
//! A source that is not in memory is read through a staging buffer that holds one panel of a matrix, or a piece of a
//! vector or table; it is booked on the account `staging` for the time of the copy.

use half::bf16;
use plimsoll_device::{Buffer, ByteCount, DType, DeviceError, HostBytes, ReadError, Upload, UploadPiece, WeightForm};

use crate::device::Shared;
use crate::isa::Isa;
use crate::numbers::{NumbersMut, stored_number};
use crate::pack;
use crate::storage::{HostMemory, LINE_BYTES};

/// Most bytes of a vector or table that are staged at once.
const STAGED_BYTES_MAX: usize = 256 << 10;

/// Bytes that a weight takes, packed: see [`plimsoll_device::Device::weight_bytes`].
pub(crate) fn weight_bytes(isa: Isa, form: &WeightForm, dtype: DType) -> ByteCount {
    let len = match *form {
        WeightForm::Matrix { out, depth, taps } => pack::packed_len(isa, out, depth, taps),
        _ => form.element_count(),
    };
    ByteCount::of(len * device_dtype(form, dtype).size()).align_up(LINE_BYTES as u64)
}

/// The largest staging buffer that a piece of `upload` needs.
pub(crate) fn staging_bytes(isa: Isa, upload: &Upload) -> ByteCount {
    let staged = upload.pieces.iter().filter(|piece| piece.source.as_slice().is_none());
    let bytes = staged.map(|piece| chunk_bytes(isa, piece).min(piece.source.len())).max().unwrap_or(0);
    ByteCount::of(bytes).align_up(LINE_BYTES as u64)
}

/// Copies `upload` into `slot`.
///
/// # Errors
/// [`DeviceError::Upload`] if the storage fails, [`DeviceError::Alloc`] without memory for staging; the slot's
/// contents are unspecified then.
pub(crate) fn fill(shared: &Shared, upload: &Upload, slot: &mut Buffer) -> Result<(), DeviceError> {
    let staging_bytes = staging_bytes(shared.isa, upload);
    let mut staging = match staging_bytes {
        ByteCount::ZERO => None,
        bytes => Some(shared.allocate(shared.ledger.account("staging"), bytes)?),
    };
    if shared.clock.is_rehearsing() {
        return Ok(());
    }
    let staging = staging.as_mut().map_or(&mut [][..], |buffer| buffer.storage_mut::<HostMemory>().bytes_mut());
    let slot = slot.storage_mut::<HostMemory>().bytes_mut();
    for piece in &upload.pieces {
        let size = weight_bytes(shared.isa, &piece.form, piece.dtype).to_usize();
        let target = &mut slot[piece.offset..][..size];
        fill_piece(shared.isa, piece, staging, target)
            .map_err(|source| DeviceError::Upload { unit: upload.name.clone(), source })?;
    }
    Ok(())
}

fn fill_piece(isa: Isa, piece: &UploadPiece, staging: &mut [u8], target: &mut [u8]) -> Result<(), ReadError> {
    let source_len = piece.form.element_count() * piece.source_dtype.size();
    assert_eq!(piece.source.len(), source_len, "stored bytes of a weight");
    let chunk_bytes = chunk_bytes(isa, piece);
    let target_dtype = device_dtype(&piece.form, piece.dtype);
    let mut target = target;
    for start in (0..source_len).step_by(chunk_bytes.max(1)) {
        let end = (start + chunk_bytes).min(source_len);
        let bytes = chunk(&*piece.source, start..end, staging)?;
        match piece.form {
            WeightForm::Matrix { depth, taps, .. } => {
                let panel_bytes = pack::panel_len(isa, depth, taps) * target_dtype.size();
                let panel;
                (panel, target) = target.split_at_mut(panel_bytes);
                pack::pack_panel(isa, bytes, piece.source_dtype, depth, taps, numbers_mut(panel, target_dtype));
            }
            WeightForm::Vector { .. } | WeightForm::Table { .. } => {
                let len = bytes.len() / piece.source_dtype.size();
                let converted;
                (converted, target) = target.split_at_mut(len * target_dtype.size());
                convert(bytes, piece.source_dtype, numbers_mut(converted, target_dtype));
            }
        }
    }
    Ok(())
}

/// Source bytes that are handled together: the rows of a panel, or a piece of a vector or table.
fn chunk_bytes(isa: Isa, piece: &UploadPiece) -> usize {
    match piece.form {
        WeightForm::Matrix { depth, taps, .. } => pack::panel_len(isa, depth, taps) * piece.source_dtype.size(),
        WeightForm::Vector { .. } | WeightForm::Table { .. } => STAGED_BYTES_MAX,
    }
}

fn chunk<'a>(
    source: &'a dyn HostBytes,
    range: std::ops::Range<usize>,
    staging: &'a mut [u8],
) -> Result<&'a [u8], ReadError> {
    if let Some(bytes) = source.as_slice() {
        return Ok(&bytes[range]);
    }
    let staging = &mut staging[..range.len()];
    source.read_at(range, staging)?;
    Ok(staging)
}

/// Little-endian numbers to the compute dtype, rounding to nearest even.
fn convert(bytes: &[u8], source_dtype: DType, target: NumbersMut<'_>) {
    let numbers = bytes.chunks_exact(source_dtype.size()).map(|bytes| stored_number(source_dtype, bytes));
    match target {
        NumbersMut::F32(target) => target.iter_mut().zip(numbers).for_each(|(target, number)| *target = number),
        NumbersMut::Bf16(target) => {
            target.iter_mut().zip(numbers).for_each(|(target, number)| *target = bf16::from_f32(number));
        }
    }
}

fn device_dtype(form: &WeightForm, dtype: DType) -> DType {
    if matches!(form, WeightForm::Vector { .. }) { DType::F32 } else { dtype }
}

fn numbers_mut(bytes: &mut [u8], dtype: DType) -> NumbersMut<'_> {
    match dtype {
        DType::F32 => NumbersMut::F32(bytemuck::cast_slice_mut(bytes)),
        DType::BF16 => NumbersMut::Bf16(bytemuck::cast_slice_mut(bytes)),
        DType::F16 => unreachable!("weights are computed with as f32 or bf16"),
    }
}

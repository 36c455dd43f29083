//! Numbers: as they are stored, and slices of them in one of the compute formats, which kernels read and write.

use half::{bf16, f16};
use plimsoll_device::DType;

/// Numbers that a kernel reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbers<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Brain float.
    Bf16(&'a [bf16]),
}

/// Numbers that a kernel writes.
#[derive(Debug)]
pub(crate) enum NumbersMut<'a> {
    /// Single precision.
    F32(&'a mut [f32]),
    /// Brain float.
    Bf16(&'a mut [bf16]),
}

/// The value of one stored little-endian number.
///
/// # Panics
/// If `bytes` has another length than a number of `dtype`: a bug of the caller.
#[inline(always)]
pub(crate) fn stored_number(dtype: DType, bytes: &[u8]) -> f32 {
    match (dtype, bytes) {
        (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
        (DType::BF16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
        (DType::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
        _ => panic!("{} bytes are no number of {dtype}", bytes.len()),
    }
}

impl Numbers<'_> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::Bf16(numbers) => numbers.len(),
        }
    }

    /// Their format.
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::Bf16(_) => DType::BF16,
        }
    }
}

impl NumbersMut<'_> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(numbers) => numbers.len(),
            Self::Bf16(numbers) => numbers.len(),
        }
    }

    /// Their format.
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::Bf16(_) => DType::BF16,
        }
    }
}

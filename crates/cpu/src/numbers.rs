//! Slices of numbers in one of the compute formats: what kernels read and write.

use half::bf16;
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

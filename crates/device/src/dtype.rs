//! Number formats.

use std::fmt;

use serde::Serialize;

/// A number format. Kernels compute on [`F32`](DType::F32) and [`BF16`](DType::BF16), accumulating in f32;
/// [`F16`](DType::F16) occurs in files only and is converted while weights are uploaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE single precision, 4 bytes.
    F32,
    /// The upper half of an f32, 2 bytes.
    BF16,
    /// IEEE half precision, 2 bytes.
    F16,
}

impl DType {
    /// Bytes of one number.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::BF16 | Self::F16 => 2,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::BF16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

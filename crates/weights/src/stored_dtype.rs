//! Number formats that occur in safetensors files.

use std::fmt;

use plimsoll_device::DType;
use serde::{Serialize, Serializer};

/// A number format of a safetensors file. All that the format knows can be listed; what a device can be given is
/// [`weight_dtype`](Self::weight_dtype).
#[allow(missing_docs, reason = "the names are the format's own")]
#[allow(non_camel_case_types, reason = "the names are the format's own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoredDType {
    Bool,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
}

/// Every format, its name in files, and the bits of one number, in the enum's order.
// Reference: safetensors 0.8, src/tensor.rs, `Dtype`
const ROWS: [(StoredDType, &str, u64); 22] = [
    (StoredDType::Bool, "BOOL", 8),
    (StoredDType::F4, "F4", 4),
    (StoredDType::F6_E2M3, "F6_E2M3", 6),
    (StoredDType::F6_E3M2, "F6_E3M2", 6),
    (StoredDType::U8, "U8", 8),
    (StoredDType::I8, "I8", 8),
    (StoredDType::F8_E5M2, "F8_E5M2", 8),
    (StoredDType::F8_E4M3, "F8_E4M3", 8),
    (StoredDType::F8_E8M0, "F8_E8M0", 8),
    (StoredDType::F8_E4M3FNUZ, "F8_E4M3FNUZ", 8),
    (StoredDType::F8_E5M2FNUZ, "F8_E5M2FNUZ", 8),
    (StoredDType::I16, "I16", 16),
    (StoredDType::U16, "U16", 16),
    (StoredDType::F16, "F16", 16),
    (StoredDType::BF16, "BF16", 16),
    (StoredDType::I32, "I32", 32),
    (StoredDType::U32, "U32", 32),
    (StoredDType::F32, "F32", 32),
    (StoredDType::C64, "C64", 64),
    (StoredDType::F64, "F64", 64),
    (StoredDType::I64, "I64", 64),
    (StoredDType::U64, "U64", 64),
];

impl StoredDType {
    /// The format of that name, or `None` if safetensors knows none.
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// All names, separated by commas: what an error lists.
    pub(crate) fn names() -> String {
        ROWS.map(|row| row.1).join(", ")
    }

    /// Its name in files, such as `BF16`.
    pub fn name(self) -> &'static str {
        ROWS[self as usize].1
    }

    /// Bits of one number. Three formats have less than a byte.
    pub fn bit_count(self) -> u64 {
        ROWS[self as usize].2
    }

    /// The device's name for it, if weights can be uploaded from it.
    pub fn weight_dtype(self) -> Option<DType> {
        match self {
            Self::F32 => Some(DType::F32),
            Self::BF16 => Some(DType::BF16),
            Self::F16 => Some(DType::F16),
            _ => None,
        }
    }

    /// Whether tensors of it count as parameters: floats do; integers and flags are buffers beside the weights.
    pub fn is_float(self) -> bool {
        !matches!(
            self,
            Self::Bool
                | Self::U8
                | Self::I8
                | Self::I16
                | Self::U16
                | Self::I32
                | Self::U32
                | Self::I64
                | Self::U64
                | Self::C64
        )
    }
}

impl fmt::Display for StoredDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for StoredDType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_in_the_order_of_the_enum() {
        for (idx, row) in ROWS.iter().enumerate() {
            assert_eq!(row.0 as usize, idx, "{}", row.1);
            assert_eq!(StoredDType::from_name(row.1), Some(row.0));
        }
    }
}

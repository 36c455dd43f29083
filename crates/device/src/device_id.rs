//! Which device of a machine.

use std::fmt;

use serde::Serialize;

/// A device's kind and its number among those of its kind. Displays as `cpu:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DeviceId {
    /// `cpu`, `sim`, ..
    pub kind: &'static str,
    /// Counted from 0.
    pub index: usize,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

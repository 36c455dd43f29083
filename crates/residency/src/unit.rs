//! The weights that move together.

use std::fmt;
use std::sync::Arc;

use plimsoll_device::{ByteCount, Device, Upload};

/// A unit's place in its component's visiting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub usize);

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unit {}", self.0)
    }
}

/// The weights that move together: one layer's weight and bias.
#[derive(Clone)]
pub struct Unit {
    /// How to copy it in.
    pub upload: Arc<Upload>,
    /// What it takes on the device.
    pub bytes: ByteCount,
    /// Scratch memory for copying it in.
    pub staging_bytes: ByteCount,
}

impl Unit {
    /// The unit of these tensors, measured for `device`. The pieces' offsets are set here: one behind the other.
    pub fn new(device: &dyn Device, mut upload: Upload) -> Self {
        let mut end = ByteCount::ZERO;
        for piece in &mut upload.pieces {
            piece.offset = end.to_usize();
            end += device.weight_bytes(&piece.form, piece.dtype);
        }
        let staging_bytes = device.staging_bytes(&upload);
        Self { upload: Arc::new(upload), bytes: device.allocated_bytes(end), staging_bytes }
    }

    /// Its layer's name.
    pub fn name(&self) -> &str {
        &self.upload.name
    }
}

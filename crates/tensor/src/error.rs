//! What can go wrong with an op.

use plimsoll_device::{AllocError, DeviceError};

/// An op could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpError {
    /// The shapes or dtypes don't fit together. The model's configuration and its inputs disagree.
    #[error("`{op}` can't take {operands}: {rule}")]
    Shape {
        /// The op.
        op: &'static str,
        /// All operands with their shapes.
        operands: String,
        /// What must hold.
        rule: String,
    },
    /// The device failed, or has no memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<AllocError> for OpError {
    fn from(error: AllocError) -> Self {
        Self::Device(error.into())
    }
}

/// Names the operands of an op for [`OpError::Shape`].
pub(crate) fn shape_error(op: &'static str, operands: &[(&str, &[usize])], rule: impl Into<String>) -> OpError {
    let operands = operands.iter().map(|(name, shape)| format!("`{name}` {shape:?}")).collect::<Vec<_>>();
    let operands = if operands.is_empty() { "nothing".to_owned() } else { operands.join(", ") };
    OpError::Shape { op, operands, rule: rule.into() }
}

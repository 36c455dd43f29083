//! A value with shape and dtype in device memory, and the op set on it.
//!
//! Ops are methods of [`Compute`], which says where they run and on which account their outputs are booked. They are
//! eager: an op checks its shapes, allocates its output, and enqueues one kernel. A shape that does not fit is an
//! [`OpError::Shape`] that names the op and all shapes.
//!
//! What always holds: tensors are row-major and contiguous; images are channels-last `[batch, height, width,
//! channels]`; the inputs of an op have one dtype. Weights are no tensors: an op takes them as [`Weight`], which
//! borrows from a lease.
//!
//! Deliberately absent: strides, implicit broadcasting, lazy evaluation, a current device.

#![forbid(unsafe_code)]

mod compute;
mod error;
mod ops;
mod tensor;
mod weight;

pub use compute::Compute;
pub use error::OpError;
pub use ops::Conv2dSpec;
pub use plimsoll_device::{Activation, DType};
pub use tensor::Tensor;
pub use weight::Weight;

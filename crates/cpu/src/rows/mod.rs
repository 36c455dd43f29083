//! The light operations: everything that reads its operands once or a few times and does no matrix product.
//!
//! Each is a plain loop that the compiler vectorizes, compiled once per instruction set ([`kernel`]) and spread over
//! the threads of the current rayon pool in pieces whose bounds depend on the shape alone ([`spread`]), so the results
//! are the same bits for any number of threads. Arithmetic is f32 whatever the stored format; bf16 is rounded to
//! nearest even when stored. NaN and infinities go through as IEEE 754 says.
//!
//! Deliberately ignorant of buffers, queues and accounts: functions over slices, whose lengths are asserted.

mod activation;
mod convert;
mod elementwise;
mod function;
mod gather;
mod group_norm;
mod kernel;
mod layer_norm;
mod number;
mod resize;
mod spread;
mod sum;

pub(crate) use activation::{activate, geglu};
pub(crate) use convert::convert;
pub(crate) use elementwise::{add, add_per_batch, combine, prelu};
pub(crate) use gather::{concat, gather};
pub(crate) use group_norm::{group_norm, group_norm_scratch_len};
pub(crate) use layer_norm::layer_norm;
pub(crate) use resize::{nearest_source, pixel_shuffle, resize_nearest};

#[cfg(test)]
mod tests;

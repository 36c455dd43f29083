//! What a device is: memory with accounts and a budget, queues, events, kernels. Traits, no backend.
//!
//! The semantics are CUDA's from the start: work is *enqueued* on a [`Queue`] and runs in that queue's order; queues
//! are ordered against each other only by [`Event`]s, and a wait happens on the device side. A backend whose queue
//! runs inline (the CPU's compute queue) is the special case in which everything enqueued has already happened.
//!
//! What always holds:
//! - Every [`Buffer`] carries a [`Charge`]: its bytes are booked on an account for exactly as long as it lives, and
//!   the sum of all charges never exceeds the budget of [`Ledger`].
//! - A buffer that is being filled is owned by the copy ([`Filling`]); nobody can read or write it before it is
//!   acquired, and acquiring inserts the wait for its `ready` event.
//! - Queues are arguments. Nothing here knows a current device or a current queue.

#![forbid(unsafe_code)]

mod buffer;
mod byte_count;
mod device_id;
mod dtype;
mod host_bytes;
mod kernels;
mod ledger;
mod queue;
mod region;
mod weight;

pub use buffer::{Buffer, Storage};
pub use byte_count::{ByteCount, ParseByteCountError};
pub use device_id::DeviceId;
pub use dtype::DType;
pub use host_bytes::{HostBytes, ReadError};
pub use kernels::{
    Activation, AttentionShape, ConvShape, GroupNormShape, Kernels, MatmulShape, OPERAND_LEN_LIMIT, Operand, Output,
    ResizeShape,
};
pub use ledger::{ARENA, Account, AccountRow, AllocError, Charge, FOREIGN, Ledger, MemoryReport};
pub use queue::{Device, DeviceError, Event, Filling, Queue};
pub use region::Region;
pub use weight::{Upload, UploadPiece, WeightForm};

//! The simulated backend: a [`Device`](plimsoll_device::Device) in virtual time, for the real engine to run on.
//!
//! It answers three questions about a program that drives a device through the traits:
//! - *When* does each copy and each kernel run on a card of given memory, link and compute rates? (`plan` predicts with it.)
//! - *Is it ordered?* Every access to every byte is checked against a vector clock, and freed memory is reused at once.
//! - *Does it survive* a failed allocation, a short read, a slow copy, a lost device, a neighbour that takes memory?
//!
//! The semantics are CUDA's: queues are asynchronous, ordered against each other by events only; copies of one device
//! share one engine, kernels another. A dependency always points to work enqueued earlier, so times, contents and clocks
//! are computed at once when work is enqueued; no event loop is needed, and one seed decides everything.
//!
//! What always holds:
//! - Same options, same seed, same calls in the same order: same times, same faults, same contents, same addresses.
//! - The simulator reports what a program does wrong as a [`Violation`]; it never stops the program for it.
//! - Memory is booked on the ledger exactly as on the cpu backend, and counted once more by the allocator itself.
//!
//! Deliberately not modelled: time the host takes to enqueue (none), several copy engines in one direction, and the
//! numbers themselves: a kernel computes nothing, it only says what it reads and writes. Host threads that enqueue
//! concurrently are safe but leave the order of their calls, and so the outcome, to the operating system.

#![forbid(unsafe_code)]

mod clock;
mod content;
mod device;
mod faults;
mod history;
mod kernels;
mod memory;
mod options;
mod parse;
mod pool;
mod queue;
mod seed;
mod trace;
mod violation;
mod world;

pub use content::Content;
pub use device::SimDevice;
pub use faults::{Fault, Faults};
pub use options::SimOptions;
pub use parse::ParseSimError;
pub use seed::Seed;
pub use trace::{MemoryChange, Span, Stall, Trace, WorkKind};
pub use violation::{Violation, ViolationKind};

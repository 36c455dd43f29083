//! The CPU backend: a budgeted arena in RAM, copy queues that are threads, SIMD kernels on packed weights.
//!
//! The compute queue runs inline: what is enqueued on it has happened when the call returns, spread over the threads
//! of one pool. Copy queues are threads with CUDA's event semantics. Results are the same bits for any number of
//! threads.
#![allow(unsafe_code)]

mod attention;
mod backend;
mod clock;
mod conv;
mod device;
mod gemm;
#[cfg(test)]
mod goldens;
mod isa;
mod micro;
#[cfg(test)]
mod naive;
mod numbers;
mod pack;
mod queue;
mod rows;
mod simd;
mod storage;
mod sync;
mod tasks;
mod upload;

pub use device::{CpuDevice, CpuError, CpuOptions};

//! What a pipeline tells while it works.

use std::fmt;

use plimsoll_device::MemoryReport;
use serde::Serialize;

/// A part of a run, with one component loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Prompts to embeddings.
    EncodeText,
    /// A picture to latents.
    EncodeImage,
    /// Noise to latents.
    Denoise,
    /// Latents to pictures.
    Decode,
    /// Pictures to larger pictures.
    Upscale,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::EncodeText => "encode_text",
            Self::EncodeImage => "encode_image",
            Self::Denoise => "denoise",
            Self::Decode => "decode",
            Self::Upscale => "upscale",
        })
    }
}

/// Is told how a run goes on, and may stop it.
pub trait Progress {
    /// A phase of so many steps begins.
    fn begin(&mut self, phase: Phase, step_count: usize);

    /// One of its steps is done. Returning `false` stops the run.
    fn step(&mut self) -> bool;

    /// The phase is over; the device's ledger as it stands before its component is unloaded.
    fn end(&mut self, memory: &MemoryReport);
}

/// Listens to nothing and stops nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _phase: Phase, _step_count: usize) {}

    fn step(&mut self) -> bool {
        true
    }

    fn end(&mut self, _memory: &MemoryReport) {}
}

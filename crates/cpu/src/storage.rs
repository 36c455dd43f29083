//! Device memory of the CPU backend: a piece of RAM.

use bytemuck::{Pod, Zeroable};
use plimsoll_device::Storage;

/// A cache line; what memory is aligned to and allocated in.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

pub(crate) const LINE_BYTES: usize = 64;

/// RAM aligned to cache lines, or, in a rehearsal, the mere claim to it.
pub(crate) struct HostMemory {
    lines: Option<Box<[Line]>>,
}

impl Storage for HostMemory {}

impl HostMemory {
    /// Zeroed memory of at least `bytes`; none if the machine does not have it.
    pub(crate) fn allocate(bytes: usize) -> Option<Self> {
        let lines = bytemuck::allocation::try_zeroed_slice_box(bytes.div_ceil(LINE_BYTES)).ok()?;
        Some(Self { lines: Some(lines) })
    }

    /// A claim without memory, for a rehearsal.
    pub(crate) fn claim() -> Self {
        Self { lines: None }
    }

    /// The bytes; empty in a rehearsal.
    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.lines.as_deref().unwrap_or_default())
    }

    /// The bytes, for writing; empty in a rehearsal.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self.lines.as_deref_mut().unwrap_or_default())
    }
}

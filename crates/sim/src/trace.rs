//! What ran when, for plots and replay.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_device::ByteCount;

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkKind {
    /// A copy to the device, on the copy engine.
    Copy,
    /// A kernel, on the compute engine.
    Compute,
    /// Merging an adapter into weights, on the compute engine.
    Merge,
    /// A copy from the device, on an engine of its own.
    Read,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The queue it ran on.
    pub queue: Arc<str>,
    /// What it is.
    pub kind: WorkKind,
    /// Its name: the unit copied, the kernel, the driver's operation.
    pub name: Arc<str>,
    /// Bytes copied; 0 for a kernel.
    pub bytes: ByteCount,
    /// When it began, on the device's clock.
    pub start: Duration,
    /// When it was done.
    pub end: Duration,
}

/// Memory taken or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryChange {
    /// When, in the order of the queue it was allocated for.
    pub time: Duration,
    /// The account's name.
    pub account: String,
    /// Positive when taken, negative when given back.
    pub bytes: i64,
}

/// A time in which the compute engine had nothing to do between two operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The operation that ended it.
    pub before: Arc<str>,
    /// When it began.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
}

/// What ran when, and which memory was taken, in the order of enqueueing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Operations.
    pub spans: Vec<Span>,
    /// Allocations and frees.
    pub memory: Vec<MemoryChange>,
}

impl Trace {
    /// How long operations of that kind took together.
    pub fn busy(&self, kind: WorkKind) -> Duration {
        self.spans.iter().filter(|span| span.kind == kind).map(|span| span.end - span.start).sum()
    }

    /// Bytes copied to the device.
    pub fn copied_bytes(&self) -> ByteCount {
        self.spans.iter().filter(|span| span.kind == WorkKind::Copy).map(|span| span.bytes).sum()
    }

    /// When the last operation was done.
    pub fn end(&self) -> Duration {
        self.spans.iter().map(|span| span.end).max().unwrap_or_default()
    }

    /// The times in which the compute engine waited, from its first operation to its last: for copies, for copies that
    /// run on the compute queue itself, or for the host.
    pub fn stalls(&self) -> Vec<Stall> {
        let computes = self.spans.iter().filter(|span| matches!(span.kind, WorkKind::Compute | WorkKind::Merge));
        let mut stalls = Vec::new();
        let mut last_end = None;
        // The engine works in the order of enqueueing, so the spans are in the order of time.
        for span in computes {
            if let Some(start) = last_end.filter(|&start| start < span.start) {
                stalls.push(Stall { before: span.name.clone(), start, end: span.start });
            }
            last_end = Some(span.end);
        }
        stalls
    }
}

//! What a program did wrong.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use plimsoll_device::DeviceId;

/// Most violations that are kept; a broken program makes one at each operation.
pub(crate) const VIOLATIONS_MAX: usize = 1000;

/// Which rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViolationKind {
    /// Bytes are read by work that is not ordered behind their last write.
    ReadUnordered,
    /// Bytes are written by work that is not ordered behind their last write.
    WriteUnorderedAfterWrite,
    /// Bytes are written by work that is not ordered behind a read of what is there.
    WriteUnorderedAfterRead,
    /// Bytes are written by work that is not ordered behind their allocation.
    WriteBeforeAllocation,
    /// Bytes are read that their present owner has not written.
    ReadOfPoison,
    /// An operation touches bytes beyond the end of its buffer.
    OutOfBounds,
}

/// A broken rule: which bytes, and the one or two operations involved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub kind: ViolationKind,
    /// Where.
    pub device: DeviceId,
    /// Addresses; for [`ViolationKind::OutOfBounds`], bytes of the buffer.
    pub bytes: Range<u64>,
    /// The operation that broke it: its name, its queue and its time.
    pub access: String,
    /// The operation that it had to wait for.
    pub other: Option<String>,
    /// When the operation that broke it begins.
    pub time: Duration,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, device, bytes, access, .. } = self;
        let other = self.other.as_deref().unwrap_or_default();
        write!(f, "{device}: {access} ")?;
        let bytes = format!("bytes {:#x}..{:#x}", bytes.start, bytes.end);
        match kind {
            ViolationKind::ReadUnordered => write!(f, "reads {bytes} without waiting for {other}, which writes them"),
            ViolationKind::WriteUnorderedAfterWrite => {
                write!(f, "writes {bytes} without waiting for {other}, which writes them")
            }
            ViolationKind::WriteUnorderedAfterRead => {
                write!(f, "writes {bytes} without waiting for {other}, which reads them")
            }
            ViolationKind::WriteBeforeAllocation => {
                write!(f, "writes {bytes} without waiting for {other}, which allocates them")
            }
            ViolationKind::ReadOfPoison => write!(f, "reads {bytes}, which their owner has not written"),
            ViolationKind::OutOfBounds => write!(f, "touches {bytes} beyond the end of its buffer"),
        }
    }
}

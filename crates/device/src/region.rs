//! One allocation that is handed out in parts: what a ring of bytes is made of.

use std::ops::Range;
use std::sync::Arc;

use crate::{Buffer, ByteCount};

/// One allocation, booked as a whole for as long as it or a part of it lives, and handed out in parts that don't overlap.
///
/// A part is a [`Buffer`] like any other: owned by the copy that fills it, or by whoever reads it. Dropping it gives its
/// bytes back to the region at once, without waiting for work enqueued on them: whoever takes them again orders that
/// work behind the last use, by events.
pub trait Region: Send + Sync {
    /// Bytes of the whole.
    fn size(&self) -> ByteCount;

    /// The bytes of `range` as a buffer; none while a part of them is handed out.
    ///
    /// # Panics
    /// If `range` is not within the region, or does not begin and end at the device's allocation unit: a bug.
    fn take(self: Arc<Self>, range: Range<u64>) -> Option<Buffer>;
}

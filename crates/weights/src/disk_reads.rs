//! How bytes came from disk, counted.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_device::ByteCount;

/// How bytes came from disk so far, for reports. All zero for files that are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DiskReads {
    /// Read past the page cache, whoever asked: a reader, or reading ahead.
    pub direct: ByteCount,
    /// Read through the page cache: what was in it, and what is to stay in it.
    pub cached: ByteCount,
    /// Given to readers out of what had been read ahead. Counted as `direct` or `cached` before, when it was read.
    pub from_window: ByteCount,
}

impl AddAssign for DiskReads {
    fn add_assign(&mut self, other: Self) {
        self.direct.0 += other.direct.0;
        self.cached.0 += other.cached.0;
        self.from_window.0 += other.from_window.0;
    }
}

/// Counts the reads of one file.
#[derive(Default)]
pub(crate) struct Counters {
    direct: AtomicU64,
    cached: AtomicU64,
    from_window: AtomicU64,
}

impl Counters {
    pub(crate) fn add_direct(&self, len: usize) {
        self.direct.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_cached(&self, len: usize) {
        self.cached.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_from_window(&self, len: usize) {
        self.from_window.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn reads(&self) -> DiskReads {
        let count = |counter: &AtomicU64| ByteCount(counter.load(Ordering::Relaxed));
        DiskReads { direct: count(&self.direct), cached: count(&self.cached), from_window: count(&self.from_window) }
    }
}

//! Device memory of the CPU backend: a piece of RAM of its own, or a part of a region.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};
use plimsoll_device::{Buffer, ByteCount, Charge, Region, Storage};

/// A cache line; what memory is aligned to and allocated in.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);

pub(crate) const LINE_BYTES: usize = 64;

/// RAM aligned to cache lines, or, in a rehearsal, the mere claim to it.
pub(crate) enum HostMemory {
    /// A claim without memory, for a rehearsal.
    Claim,
    /// Memory of its own.
    Own(Lines),
    /// A part of a region.
    Part(Part),
}

impl Storage for HostMemory {}

/// Zeroed lines.
pub(crate) struct Lines(Box<[Line]>);

impl HostMemory {
    /// Zeroed memory of at least `bytes`; none if the machine does not have it.
    pub(crate) fn allocate(bytes: usize) -> Option<Self> {
        zeroed(bytes).map(|lines| Self::Own(Lines(lines)))
    }

    /// The bytes; empty in a rehearsal.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Claim => nothing(),
            Self::Own(lines) => bytemuck::cast_slice(&lines.0),
            Self::Part(part) => part.bytes(),
        }
    }

    /// The bytes, for writing; empty in a rehearsal.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Claim => nothing_mut(),
            Self::Own(lines) => bytemuck::cast_slice_mut(&mut lines.0),
            Self::Part(part) => part.bytes_mut(),
        }
    }
}

/// No bytes, but aligned as all memory here is.
fn nothing<'a>() -> &'a [u8] {
    bytemuck::cast_slice::<Line, u8>(&[])
}

fn nothing_mut<'a>() -> &'a mut [u8] {
    bytemuck::cast_slice_mut::<Line, u8>(&mut [])
}

fn zeroed(bytes: usize) -> Option<Box<[Line]>> {
    bytemuck::allocation::try_zeroed_slice_box(bytes.div_ceil(LINE_BYTES)).ok()
}

/// One allocation that is handed out in parts.
pub(crate) struct HostRegion {
    size: ByteCount,
    /// The memory; none in a rehearsal.
    lines: Option<RawLines>,
    /// The parts that live, none of which overlap.
    taken: Mutex<Vec<Range<u64>>>,
    _charge: Charge,
}

/// Lines that are reached through a pointer, because several parts of them are written at once.
struct RawLines(*mut [Line]);

// SAFETY: the pointer is the only way to the lines, as with a box, and nothing is read or written through it but by
// `Part`, each within its own range.
unsafe impl Send for RawLines {}
// SAFETY: as above; sharing a `RawLines` gives no access by itself.
unsafe impl Sync for RawLines {}

impl Drop for RawLines {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw`, and this runs once, when the region goes: after its parts, each
        // of which keeps the region alive.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl HostRegion {
    /// A region of zeroed memory; none if the machine does not have it.
    pub(crate) fn allocate(size: ByteCount, charge: Charge) -> Option<Self> {
        let lines = RawLines(Box::into_raw(zeroed(size.to_usize())?));
        Some(Self { size, lines: Some(lines), taken: Mutex::default(), _charge: charge })
    }

    /// The claim to a region, for a rehearsal.
    pub(crate) fn claim(size: ByteCount, charge: Charge) -> Self {
        Self { size, lines: None, taken: Mutex::default(), _charge: charge }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region for HostRegion {
    fn size(&self) -> ByteCount {
        self.size
    }

    fn take(self: Arc<Self>, range: Range<u64>) -> Option<Buffer> {
        let is_whole = [range.start, range.end].iter().all(|end| end.is_multiple_of(LINE_BYTES as u64));
        assert!(is_whole && range.start <= range.end && range.end <= self.size.0, "{range:?} of {}", self.size);
        let size = ByteCount(range.end - range.start);
        {
            let mut taken = self.taken();
            if taken.iter().any(|other| other.start < range.end && range.start < other.end) {
                return None;
            }
            taken.push(range.clone());
        }
        Some(Buffer::part(Box::new(HostMemory::Part(Part { region: self, range })), size))
    }
}

/// A part of a region, which it gives back on drop.
pub(crate) struct Part {
    region: Arc<HostRegion>,
    range: Range<u64>,
}

impl Part {
    fn start_and_len(&self) -> Option<(*mut u8, usize)> {
        let lines = self.region.lines.as_ref()?;
        let (start, end) = (ByteCount(self.range.start).to_usize(), ByteCount(self.range.end).to_usize());
        Some((lines.0.cast::<u8>().wrapping_add(start), end - start))
    }

    fn bytes(&self) -> &[u8] {
        self.start_and_len().map_or(nothing(), |(start, len)| {
            // SAFETY: the range lies within the region, whose zeroed memory lives as long as `self`, and no other part
            // overlaps it, so that it is written only through `self`.
            unsafe { std::slice::from_raw_parts(start, len) }
        })
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.start_and_len().map_or(nothing_mut(), |(start, len)| {
            // SAFETY: as in `bytes`, and `self` is borrowed for writing.
            unsafe { std::slice::from_raw_parts_mut(start, len) }
        })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut taken = self.region.taken();
        let position = taken.iter().position(|range| *range == self.range).expect("a part is taken while it lives");
        taken.swap_remove(position);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_device::Ledger;

    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back() {
        let ledger = Ledger::new(ByteCount(256));
        let charge = ledger.charge(ledger.account("ring"), ByteCount(256)).unwrap();
        let region = Arc::new(HostRegion::allocate(ByteCount(256), charge).unwrap());
        let mut first = region.clone().take(0..128).unwrap();
        let mut second = region.clone().take(128..192).unwrap();
        assert!(region.clone().take(64..128).is_none() && region.clone().take(0..256).is_none());
        first.storage_mut::<HostMemory>().bytes_mut().fill(1);
        second.storage_mut::<HostMemory>().bytes_mut().fill(2);
        assert!(first.storage::<HostMemory>().bytes().iter().all(|&byte| byte == 1));
        drop(first);
        let again = region.clone().take(64..128).unwrap();
        assert_eq!(again.storage::<HostMemory>().bytes(), [1; 64], "the same memory");
        drop(region);
        assert_eq!(ledger.used(), ByteCount(256), "a part keeps the region");
        drop((second, again));
        assert_eq!(ledger.used(), ByteCount::ZERO);
    }
}

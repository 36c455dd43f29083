//! A file on disk, read in the way that suits each of its extents.
//!
//! A read looks into the window first, then into the page cache, and only then goes to the disk: past the cache or
//! through it, as [`extents`](crate::extents) says. Whatever goes wrong on these ways, the bytes that were asked for
//! are read plainly through the cache once more, and only what *that* read says is an error. So a fault next to the
//! bytes, or in a background thread, fails nobody who didn't want the bytes that are at fault.
//!
//! Whether an extent is in the page cache is asked for a few of its pages, once per visit. Asking for a page that isn't
//! there makes the kernel fetch it; that one page is given up again after a direct read.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::aligned_buffer::ALIGN_BYTES;
use crate::disk_reads::{Counters, DiskReads};
use crate::extents::{EXTENT_BYTES, Extents, Route};
use crate::raw_file::{RawFile, is_unsupported};
use crate::read_ahead::DiskTier;
use crate::window::{Claim, Claimed, FileId, extent_end};

/// How many ranges are remembered to be warm while they are visited: about as many as threads read at once.
const VISIT_COUNT: usize = 16;

/// An open file on disk.
pub(crate) struct DiskFile {
    raw: Box<dyn RawFile>,
    /// When it was opened.
    len: u64,
    id: FileId,
    tier: Arc<DiskTier>,
    extents: Extents,
    counters: Counters,
    /// The file system can't read past the page cache.
    no_direct: AtomicBool,
    /// Nobody can tell what the page cache holds.
    no_warmth: AtomicBool,
    /// Where tensors, or their parts in one extent, end that were found warm; at the extent's index modulo the length.
    warm_visits: [AtomicU64; VISIT_COUNT],
}

/// Whether bytes are in the page cache.
enum Warmth {
    Warm,
    /// They aren't, or not all; the page at this offset isn't.
    Cold(u64),
    Unknown,
}

impl DiskFile {
    pub(crate) fn new(raw: Box<dyn RawFile>, tier: Arc<DiskTier>) -> io::Result<Self> {
        Ok(Self {
            len: raw.len()?,
            id: tier.new_file_id(),
            raw,
            tier,
            extents: Extents::default(),
            counters: Counters::default(),
            no_direct: AtomicBool::new(false),
            no_warmth: AtomicBool::new(false),
            warm_visits: Default::default(),
        })
    }

    /// How long it was when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How long it is now.
    pub(crate) fn len_now(&self) -> io::Result<u64> {
        self.raw.len()
    }

    pub(crate) fn reads(&self) -> DiskReads {
        self.counters.reads()
    }

    /// Fills `out` from `offset` on, through the page cache.
    pub(crate) fn read_plainly(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.fill_with(|offset, out| self.raw.read_at(offset, out), offset, out)
    }

    /// Fills `out` from `offset` on, as part of reading on to `end`.
    pub(crate) fn read(&self, mut offset: u64, mut out: &mut [u8], end: u64) -> io::Result<()> {
        while !out.is_empty() {
            let len = out.len().min(usize::try_from(extent_end(offset) - offset).unwrap_or(usize::MAX));
            let (part, rest) = out.split_at_mut(len);
            self.read_part(offset, part, end.min(extent_end(offset)))?;
            offset += len as u64;
            out = rest;
        }
        Ok(())
    }

    /// Leaves a hint that `range` will be read.
    pub(crate) fn read_ahead(self: &Arc<Self>, range: Range<u64>) {
        if !range.is_empty() && !self.no_warmth.load(Ordering::Relaxed) && self.tier.reads_ahead() {
            self.tier.window.hint(self, self.id, range);
        }
    }

    /// Follows a hint. A failure is nobody's: who wants the bytes will read them.
    pub(crate) fn follow(&self, mut claim: Claim<'_>) {
        if let Warmth::Cold(page) = self.warmth(&claim.range())
            && self.fill(&mut claim, page).is_ok()
        {
            claim.finish();
        }
    }

    /// Fills `out` from `offset` on, all in one extent, as part of reading on to `end` in that extent.
    fn read_part(&self, mut offset: u64, mut out: &mut [u8], end: u64) -> io::Result<()> {
        while !out.is_empty() {
            let taken = self.tier.window.take(self.id, offset, out);
            if taken.read_ahead {
                self.counters.add_from_window(taken.len);
            }
            let len = match taken.len {
                0 => self.read_now(offset, out, end)?,
                len => len,
            };
            offset += len as u64;
            out = &mut out[len..];
        }
        Ok(())
    }

    /// Fills the beginning of `out` with what isn't in the window, and tells how much that is; 0 if somebody else is
    /// reading it.
    fn read_now(&self, offset: u64, out: &mut [u8], end: u64) -> io::Result<usize> {
        let visit = &self.warm_visits[(offset / EXTENT_BYTES) as usize % VISIT_COUNT];
        if visit.load(Ordering::Relaxed) == end {
            match self.read_resident(offset, out) {
                0 => visit.store(0, Ordering::Relaxed),
                len => return Ok(len),
            }
        }
        match self.warmth(&(offset..end)) {
            Warmth::Unknown => {
                self.fill_with(|offset, out| self.raw.read_on_at(offset, out), offset, out)?;
                Ok(out.len())
            }
            Warmth::Cold(page) if page == offset => self.read_cold(offset, out, end),
            Warmth::Cold(page) => {
                self.forget_page(page);
                let len = out.len().min((page - offset) as usize);
                match self.read_resident(offset, &mut out[..len]) {
                    0 => self.read_cold(offset, out, end),
                    len => Ok(len),
                }
            }
            Warmth::Warm => {
                visit.store(end, Ordering::Relaxed);
                match self.read_resident(offset, out) {
                    0 => self.read_cold(offset, out, end),
                    len => Ok(len),
                }
            }
        }
    }

    /// Fills the beginning of `out` with what the page cache has of it, and tells how much that is.
    fn read_resident(&self, offset: u64, out: &mut [u8]) -> usize {
        // Whatever failed will fail again where it is reported.
        let len = self.raw.read_resident_at(offset, out).unwrap_or(0);
        if len > 0 {
            self.counters.add_cached(len);
            self.tier.window.pass(self.id, &(offset..offset + len as u64));
        }
        len
    }

    /// Fills the beginning of `out` from disk, and tells how much that is; 0 if somebody else is reading it.
    fn read_cold(&self, offset: u64, out: &mut [u8], end: u64) -> io::Result<usize> {
        let mut claim = match self.tier.window.claim(self.id, offset..end) {
            Claimed::Ours(claim) => claim,
            Claimed::Theirs => return Ok(0),
            Claimed::NoMemory => return self.read_cold_plainly(offset, out),
        };
        let range = claim.range();
        let len = out.len().min((range.end - offset) as usize);
        let out = &mut out[..len];
        self.tier.window.pass(self.id, &range);
        if self.fill(&mut claim, offset).is_err() {
            drop(claim);
            return self.read_cold_plainly(offset, out);
        }
        claim.finish_and_take(out);
        Ok(len)
    }

    /// Fills all of `out` by reads that may be short.
    fn fill_with(
        &self,
        read_at: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
        mut offset: u64,
        mut out: &mut [u8],
    ) -> io::Result<()> {
        while !out.is_empty() {
            match read_at(offset, out) {
                Ok(0) => return Err(cut_off()),
                Ok(len) => {
                    self.counters.add_cached(len);
                    offset += len as u64;
                    out = &mut out[len..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The last resort for cold bytes, whose errors are reported.
    fn read_cold_plainly(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.tier.window.pass(self.id, &(offset..offset + out.len() as u64));
        self.read_plainly(offset, out)?;
        Ok(out.len())
    }

    /// Reads what is claimed, as it suits its extent. The cache drops `cold_page`, which it was asked for, if it isn't
    /// to have the others.
    fn fill(&self, claim: &mut Claim<'_>, cold_page: u64) -> io::Result<()> {
        let range = claim.range();
        let (start, out) = claim.padded();
        let before = (range.start - start) as usize;
        let len = (range.end - range.start) as usize;
        if self.no_direct.load(Ordering::Relaxed)
            || self.extents.route(range, self.len, &self.tier.room) == Route::Cached
        {
            return self.read_plainly(start + before as u64, &mut out[before..][..len]);
        }
        match self.read_direct(start, out, before + len) {
            Ok(()) => {
                self.forget_page(cold_page);
                self.counters.add_direct(len);
                Ok(())
            }
            Err(error) => {
                if is_unsupported(&error) {
                    self.no_direct.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// Lets the page cache drop the page of `offset`, which it wasn't asked for to keep.
    fn forget_page(&self, offset: u64) {
        self.raw.forget_page(offset - offset % ALIGN_BYTES as u64);
    }

    /// Fills at least `len_min` bytes of `out`; the file may end before the padding does.
    fn read_direct(&self, start: u64, out: &mut [u8], len_min: usize) -> io::Result<()> {
        let mut filled = 0;
        while filled < len_min {
            // A short read may end anywhere, and the next has to begin at a multiple again.
            let from = filled - filled % ALIGN_BYTES;
            match self.raw.read_direct_at(start + from as u64, &mut out[from..]) {
                Ok(len) if from + len > filled => filled = from + len,
                Ok(_) => return Err(cut_off()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks for the first, the middle and the last page.
    fn warmth(&self, range: &Range<u64>) -> Warmth {
        if self.no_warmth.load(Ordering::Relaxed) {
            return Warmth::Unknown;
        }
        let mut page_before = None;
        for offset in [range.start, range.start.midpoint(range.end), range.end - 1] {
            let page = offset / ALIGN_BYTES as u64;
            if page_before == Some(page) {
                continue;
            }
            page_before = Some(page);
            match self.raw.is_resident(offset) {
                Ok(false) => return Warmth::Cold(offset),
                Ok(true) => {}
                Err(error) if is_unsupported(&error) => {
                    self.no_warmth.store(true, Ordering::Relaxed);
                    return Warmth::Unknown;
                }
                Err(_) => return Warmth::Cold(offset),
            }
        }
        Warmth::Warm
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.tier.window.forget(self.id);
        self.extents.give_back(&self.tier.room);
    }
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "failed to fill whole buffer")
}

//! The window: bytes that have been read and not yet been taken, and those that are being read.
//!
//! What always holds:
//! - All buffers together have at most the window's bytes. A thread has a buffer before it announces that it reads, so
//!   whoever waits for that read waits for the storage only, never for memory: nobody can deadlock.
//! - Nobody waits because a hint was wrong. A reader that needs a buffer drops the oldest bytes that nobody took;
//!   reading ahead waits for room instead, and drops only bytes that were passed by (see [`PASSED_BY_FACTOR`]).
//!   Bytes leave the window as soon as all of them were taken once.
//! - A read that fails leaves nothing behind. Those who waited for it read for themselves, and get their own error.
//!
//! Deliberately knows no storage: [`DiskFile`] reads, and threads of [`read_ahead`](crate::read_ahead) call it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use crate::aligned_buffer::{ALIGN_BYTES, AlignedBuffer};
use crate::buffer_pool::{BufferPool, NoBuffer};
use crate::disk_file::DiskFile;
use crate::extents::EXTENT_BYTES;

/// Bytes are passed by once readers have taken so many windows' worth of others since somebody last took some of them:
/// whoever wanted them would have come.
const PASSED_BY_FACTOR: u64 = 2;

/// Most hints that wait at once; the oldest go.
const HINT_COUNT_MAX: usize = 4096;

/// A file's number within its tier.
pub(crate) type FileId = u64;

/// The window, and the hints of what to read into it.
pub(crate) struct Window {
    state: Mutex<State>,
    /// Something was read, taken, hinted at or closed.
    changed: Condvar,
    bytes_max: usize,
}

struct State {
    pool: BufferPool,
    /// Oldest first.
    entries: Vec<Entry>,
    hints: VecDeque<Hint>,
    next_key: u64,
    taken_bytes: u64,
    closed: bool,
}

/// Bytes of one extent, read or being read.
struct Entry {
    key: u64,
    file: FileId,
    range: Range<u64>,
    /// `None` while they are being read.
    buffer: Option<Arc<AlignedBuffer>>,
    buffer_len: usize,
    /// Of `range`, how many nobody took yet.
    left_bytes: u64,
    read_ahead: bool,
    /// What readers had taken, of this and all others, when it was made or last taken from.
    taken_before: u64,
}

struct Hint {
    file: Weak<DiskFile>,
    id: FileId,
    range: Range<u64>,
}

/// What [`Window::take`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// How many bytes were taken. 0 if the window doesn't have the first.
    pub(crate) len: usize,
    /// Whether they were read ahead.
    pub(crate) read_ahead: bool,
}

/// What [`Window::claim`] gives.
pub(crate) enum Claimed<'a> {
    /// The caller is to read these bytes.
    Ours(Claim<'a>),
    /// Somebody has read them, or is about to.
    Theirs,
    /// The system has no memory for a buffer.
    NoMemory,
}

impl Window {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let state = State {
            pool: BufferPool::new(bytes_max),
            entries: Vec::new(),
            hints: VecDeque::new(),
            next_key: 0,
            taken_bytes: 0,
            closed: false,
        };
        assert!(bytes_max >= 2 * EXTENT_BYTES as usize, "one extent to read ahead, and one to read now");
        Self { state: Mutex::new(state), changed: Condvar::new(), bytes_max }
    }

    /// Fills the beginning of `out` with the bytes of `file` from `offset` on, as far as one read has them. Waits while
    /// they are being read.
    pub(crate) fn take(&self, file: FileId, offset: u64, out: &mut [u8]) -> Taken {
        let mut state = self.lock();
        let (key, buffer, range, read_ahead) = loop {
            let Some(entry) = state.entries.iter().find(|entry| entry.has(file, offset)) else {
                return Taken { len: 0, read_ahead: false };
            };
            if let Some(buffer) = &entry.buffer {
                break (entry.key, buffer.clone(), entry.range.clone(), entry.read_ahead);
            }
            state = self.wait(state);
        };
        drop(state);
        let len = out.len().min((range.end - offset) as usize);
        out[..len].copy_from_slice(&buffer.bytes()[(offset - aligned_down(range.start)) as usize..][..len]);
        self.lock().took(key, len as u64, buffer);
        self.changed.notify_all();
        Taken { len, read_ahead }
    }

    /// The right to read `range` of `file`, which lies in one extent, or its beginning up to what others read. Waits
    /// for a buffer.
    pub(crate) fn claim(&self, file: FileId, range: Range<u64>) -> Claimed<'_> {
        let mut state = self.lock();
        loop {
            if state.entries.iter().any(|entry| entry.has(file, range.start)) {
                return Claimed::Theirs;
            }
            let range = range.start..state.free_end(file, &range);
            match state.pool.take(padded_len(&range)) {
                Ok(buffer) => {
                    let key = state.enter(file, range.clone(), buffer.len(), false);
                    return Claimed::Ours(Claim { window: self, key, range, buffer: Some(buffer) });
                }
                Err(NoBuffer::NoMemory) => return Claimed::NoMemory,
                Err(NoBuffer::InUse) => {
                    if !state.drop_oldest(|_| true) {
                        state = self.wait(state);
                    }
                }
            }
        }
    }

    /// Tells that a reader reads `range` of `file` itself, so that it isn't read ahead any more.
    pub(crate) fn pass(&self, file: FileId, range: &Range<u64>) {
        self.lock().pass(file, range);
    }

    /// Leaves a hint that `range` of `file` will be read.
    pub(crate) fn hint(&self, file: &Arc<DiskFile>, id: FileId, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut state = self.lock();
        match state.hints.back_mut() {
            // Tensors that lie one behind the other become one read.
            Some(last) if last.id == id && last.range.end == range.start => last.range.end = range.end,
            _ => state.hints.push_back(Hint { file: Arc::downgrade(file), id, range }),
        }
        if state.hints.len() > HINT_COUNT_MAX {
            state.hints.pop_front();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for a hint and for room to follow it. `None` when the window is closed.
    pub(crate) fn next_ahead(&self) -> Option<(Arc<DiskFile>, Claim<'_>)> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some((file, key, range, buffer)) = state.follow_hint(self.bytes_max) {
                drop(state);
                return Some((file, Claim { window: self, key, range, buffer: Some(buffer) }));
            }
            state = self.wait(state);
        }
    }

    /// Drops what there is of `file`, and gives memory back that nobody uses.
    pub(crate) fn forget(&self, file: FileId) {
        let mut state = self.lock();
        state.hints.retain(|hint| hint.id != file);
        let (gone, kept) = std::mem::take(&mut state.entries).into_iter().partition(|entry| entry.file == file);
        state.entries = kept;
        for entry in <Vec<Entry>>::into_iter(gone) {
            state.give_back(entry.buffer);
        }
        if state.hints.is_empty() {
            state.pool.shrink();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the threads that read ahead.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, file: FileId, range: Range<u64>, buffer_len: usize, read_ahead: bool) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        let left_bytes = range.end - range.start;
        let taken_before = self.taken_bytes;
        self.entries.push(Entry { key, file, range, buffer: None, buffer_len, left_bytes, read_ahead, taken_before });
        key
    }

    /// Where the first entry behind `range.start` begins, or `range` ends.
    fn free_end(&self, file: FileId, range: &Range<u64>) -> u64 {
        let starts = self.entries.iter().filter(|entry| entry.file == file).map(|entry| entry.range.start);
        starts.filter(|&start| start > range.start).fold(range.end, u64::min)
    }

    fn took(&mut self, key: u64, len: u64, buffer: Arc<AlignedBuffer>) {
        self.taken_bytes += len;
        if let Some(idx) = self.entries.iter().position(|entry| entry.key == key) {
            let entry = &mut self.entries[idx];
            entry.left_bytes = entry.left_bytes.saturating_sub(len);
            entry.taken_before = self.taken_bytes;
            if entry.left_bytes == 0 {
                let entry = self.entries.remove(idx);
                self.give_back(entry.buffer);
            }
        }
        self.give_back(Some(buffer));
    }

    /// Returns a buffer to the pool, if nobody else uses it.
    fn give_back(&mut self, buffer: Option<Arc<AlignedBuffer>>) {
        if let Some(buffer) = buffer.and_then(Arc::into_inner) {
            self.pool.give_back(buffer);
        }
    }

    fn drop_oldest(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        let Some(idx) = self.entries.iter().position(|entry| entry.buffer.is_some() && may_go(entry)) else {
            return false;
        };
        let entry = self.entries.remove(idx);
        self.give_back(entry.buffer);
        true
    }

    fn pass(&mut self, file: FileId, range: &Range<u64>) {
        for hint in self.hints.iter_mut().filter(|hint| hint.id == file) {
            if range.start <= hint.range.start && hint.range.start < range.end {
                hint.range.start = range.end.min(hint.range.end);
            }
        }
    }

    /// Claims the beginning of the oldest hint, if there is room.
    fn follow_hint(&mut self, bytes_max: usize) -> Option<(Arc<DiskFile>, u64, Range<u64>, AlignedBuffer)> {
        // The last eighth, at least an extent, is left to those who read now.
        let ahead_max = bytes_max - (bytes_max / 8).max(EXTENT_BYTES as usize);
        loop {
            let hint = self.hints.front()?;
            let (id, hinted) = (hint.id, hint.range.clone());
            if hinted.is_empty() {
                self.hints.pop_front();
                continue;
            }
            if let Some(entry) = self.entries.iter().find(|entry| entry.has(id, hinted.start)) {
                self.hints[0].range.start = entry.range.end.min(hinted.end);
                continue;
            }
            let in_extent = hinted.start..hinted.end.min(extent_end(hinted.start));
            let range = hinted.start..self.free_end(id, &in_extent);
            let len = padded_len(&range);
            let ahead_bytes: usize =
                self.entries.iter().filter(|entry| entry.read_ahead).map(|entry| entry.buffer_len).sum();
            let buffer = if ahead_bytes + BufferPool::size_for(len) > ahead_max {
                Err(NoBuffer::InUse)
            } else {
                self.pool.take(len)
            };
            let buffer = match buffer {
                Ok(buffer) => buffer,
                Err(NoBuffer::InUse) => {
                    let passed_by = self.taken_bytes.saturating_sub(PASSED_BY_FACTOR * bytes_max as u64);
                    if self.drop_oldest(|entry| entry.taken_before < passed_by) {
                        continue;
                    }
                    return None;
                }
                Err(NoBuffer::NoMemory) => {
                    self.hints.pop_front();
                    continue;
                }
            };
            // Becomes the caller's; dropped here, it could be the last and want the lock.
            let Some(file) = self.hints[0].file.upgrade() else {
                self.pool.give_back(buffer);
                self.hints.pop_front();
                continue;
            };
            self.hints[0].range.start = range.end;
            let key = self.enter(id, range.clone(), buffer.len(), true);
            return Some((file, key, range, buffer));
        }
    }
}

impl Entry {
    fn has(&self, file: FileId, offset: u64) -> bool {
        self.file == file && self.range.contains(&offset)
    }
}

/// The right, and the duty, to read some bytes. Dropping it gives up: those who wait read for themselves.
pub(crate) struct Claim<'a> {
    window: &'a Window,
    key: u64,
    range: Range<u64>,
    buffer: Option<AlignedBuffer>,
}

impl Claim<'_> {
    /// What is to be read.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Memory for the range and what pads it to [`ALIGN_BYTES`] at both ends, and where in the file that begins.
    pub(crate) fn padded(&mut self) -> (u64, &mut [u8]) {
        let len = padded_len(&self.range);
        let buffer = self.buffer.as_mut().expect("held until the claim ends");
        (aligned_down(self.range.start), &mut buffer.bytes_mut()[..len])
    }

    /// The range has been read; it is there for others.
    pub(crate) fn finish(self) {
        self.finish_and_take(&mut []);
    }

    /// The range has been read. Takes its beginning; the rest is there for others.
    pub(crate) fn finish_and_take(mut self, out: &mut [u8]) {
        let buffer = self.buffer.take().expect("held until the claim ends");
        out.copy_from_slice(&buffer.bytes()[(self.range.start % ALIGN_BYTES as u64) as usize..][..out.len()]);
        let buffer = Arc::new(buffer);
        let mut state = self.window.lock();
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.key == self.key) {
            entry.buffer = Some(buffer.clone());
        }
        state.took(self.key, out.len() as u64, buffer);
        drop(state);
        self.window.changed.notify_all();
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let mut state = self.window.lock();
        state.entries.retain(|entry| entry.key != self.key);
        state.pool.give_back(buffer);
        drop(state);
        self.window.changed.notify_all();
    }
}

/// The end of the extent that `offset` is in.
pub(crate) fn extent_end(offset: u64) -> u64 {
    (offset - offset % EXTENT_BYTES).saturating_add(EXTENT_BYTES)
}

fn aligned_down(offset: u64) -> u64 {
    offset - offset % ALIGN_BYTES as u64
}

fn padded_len(range: &Range<u64>) -> usize {
    (range.end.next_multiple_of(ALIGN_BYTES as u64) - aligned_down(range.start)) as usize
}

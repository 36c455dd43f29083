//! Bytes on the host's side, that a copy queue can read.

use std::ops::Range;

/// The immutable bytes of one stored tensor: a range of a file, or memory that the program already has.
pub trait HostBytes: Send + Sync {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes themselves, when they are in memory already (a mapped file, a model compiled into the program).
    fn as_slice(&self) -> Option<&[u8]>;

    /// Copies `range` into `out`, which has its length. Blocks while the storage works.
    ///
    /// # Errors
    /// [`ReadError`] when the storage gives fewer bytes or fails. May be repeated.
    ///
    /// # Panics
    /// If `range` exceeds [`len`](Self::len) or `out` has another length: a bug of the caller.
    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError>;

    /// Says that all of them will be read soon, after those said so before. A hint: never blocks, never fails.
    fn read_ahead(&self) {}
}

/// The storage failed while weights were read. Check the medium; the run can be repeated.
#[derive(Clone, Debug, thiserror::Error)]
#[error("reading {len} bytes at offset {offset} of `{origin}` failed: {reason}")]
pub struct ReadError {
    /// The file, or what else holds the bytes.
    pub origin: String,
    /// Where reading began, in bytes from the start of `origin`.
    pub offset: u64,
    /// How many bytes were asked for.
    pub len: usize,
    /// What the storage said, and what to do about it.
    pub reason: String,
}

impl HostBytes for Vec<u8> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError> {
        out.copy_from_slice(&self[range]);
        Ok(())
    }
}

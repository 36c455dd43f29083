//! The memory that direct reads and reading ahead may take, together.

use crate::aligned_buffer::AlignedBuffer;
use crate::extents::EXTENT_BYTES;

/// The size of buffers for small tensors. All others have a whole extent's, so that they serve again.
const SMALL_BYTES: usize = 64 << 10;

/// Buffers of at most so many bytes together. Memory is taken when it is first needed, and goes with the pool.
pub(crate) struct BufferPool {
    /// In use and free ones together.
    held_bytes: usize,
    bytes_max: usize,
    free: Vec<AlignedBuffer>,
}

/// Why there is no buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoBuffer {
    /// All are in use.
    InUse,
    /// The system has no memory.
    NoMemory,
}

impl BufferPool {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { held_bytes: 0, bytes_max, free: Vec::new() }
    }

    /// The size of the buffer that `len` bytes take.
    pub(crate) fn size_for(len: usize) -> usize {
        if len <= SMALL_BYTES { SMALL_BYTES } else { EXTENT_BYTES as usize }
    }

    /// A buffer for `len` bytes, at most an extent's.
    pub(crate) fn take(&mut self, len: usize) -> Result<AlignedBuffer, NoBuffer> {
        let size = Self::size_for(len);
        assert!(len <= size, "no read is longer than an extent");
        if let Some(idx) = self.free.iter().position(|buffer| buffer.len() == size) {
            return Ok(self.free.swap_remove(idx));
        }
        while self.held_bytes + size > self.bytes_max {
            let buffer = self.free.pop().ok_or(NoBuffer::InUse)?;
            self.held_bytes -= buffer.len();
        }
        let buffer = AlignedBuffer::new(size).ok_or(NoBuffer::NoMemory)?;
        self.held_bytes += size;
        Ok(buffer)
    }

    pub(crate) fn give_back(&mut self, buffer: AlignedBuffer) {
        self.free.push(buffer);
    }

    /// Gives the memory of free buffers back to the system.
    pub(crate) fn shrink(&mut self) {
        let freed: usize = self.free.drain(..).map(|buffer| buffer.len()).sum();
        self.held_bytes -= freed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_holds_more_than_its_bytes() {
        let extent = EXTENT_BYTES as usize;
        let mut pool = BufferPool::new(2 * extent);
        let (first, second) = (pool.take(extent).unwrap(), pool.take(SMALL_BYTES + 1).unwrap());
        assert_eq!(pool.take(1).err(), Some(NoBuffer::InUse));
        pool.give_back(first);
        // A free one of another size makes room.
        let small = pool.take(1).unwrap();
        assert_eq!((small.len(), pool.held_bytes), (SMALL_BYTES, extent + SMALL_BYTES));
        assert_eq!(pool.take(extent).err(), Some(NoBuffer::InUse));
        pool.give_back(small);
        pool.give_back(second);
        pool.take(extent).unwrap();
        pool.shrink();
        assert_eq!(pool.held_bytes, extent);
    }
}

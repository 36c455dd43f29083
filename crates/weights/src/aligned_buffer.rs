//! Memory whose address a device can write to, past the page cache.

/// What direct reads align to: their place in the file, their length, and their memory. A multiple of every block size
/// that is common; a file system that wants more refuses, and the file is read through the page cache.
pub(crate) const ALIGN_BYTES: usize = 4096;

/// Zeros at first; then what was read. Its address and length are multiples of [`ALIGN_BYTES`].
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `None` when the system has no memory.
    pub(crate) fn new(len: usize) -> Option<Self> {
        assert_eq!(len % ALIGN_BYTES, 0, "a length for direct reads");
        let mut memory = Vec::new();
        memory.try_reserve_exact(len + ALIGN_BYTES).ok()?;
        memory.resize(len + ALIGN_BYTES, 0);
        let start = memory.as_ptr().align_offset(ALIGN_BYTES);
        (start <= ALIGN_BYTES).then_some(Self { memory, start, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_whole() {
        for len in [0, ALIGN_BYTES, 3 * ALIGN_BYTES, 4 << 20] {
            let mut buffer = AlignedBuffer::new(len).unwrap();
            assert_eq!((buffer.len(), buffer.bytes().len(), buffer.bytes_mut().len()), (len, len, len));
            assert_eq!(buffer.bytes().as_ptr() as usize % ALIGN_BYTES, 0);
        }
    }
}

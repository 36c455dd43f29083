//! What memory holds, without the numbers: a hash, and the adapters merged into it.

use std::sync::Arc;

use plimsoll_device::{ReadError, Upload};

use crate::seed::mix;

/// Most source bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What a piece of memory holds. Equal contents stand for equal bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// Of the stored bytes and where they go, or of the operation and the contents it read.
    pub hash: u64,
    /// The adapters merged into it, in the order of merging: an adapter merged twice occurs twice.
    pub adapters: Vec<u64>,
}

impl Content {
    /// What copying `upload` in leaves on the device.
    ///
    /// # Errors
    /// [`ReadError`] if a source fails.
    pub fn of_upload(upload: &Upload) -> Result<Self, ReadError> {
        let mut hash = ContentHash::default();
        let mut chunk = Vec::new();
        for piece in &upload.pieces {
            let len = piece.source.len();
            hash.add(piece.offset as u64);
            hash.add(len as u64);
            chunk.resize(len.min(CHUNK_BYTES), 0);
            for start in (0..len).step_by(CHUNK_BYTES) {
                let end = (start + CHUNK_BYTES).min(len);
                let bytes = &mut chunk[..end - start];
                piece.source.read_at(start..end, bytes)?;
                hash.add_bytes(bytes);
            }
        }
        Ok(Self { hash: hash.0, adapters: Vec::new() })
    }

    /// What the operation `name` leaves in each of its outputs when it reads `inputs`.
    pub fn of_output(name: &str, inputs: &[Content]) -> Self {
        let mut hash = ContentHash::default();
        hash.add(name.len() as u64);
        hash.add_bytes(name.as_bytes());
        inputs.iter().for_each(|input| hash.add_content(input));
        Self { hash: hash.0, adapters: Vec::new() }
    }

    /// What host bytes are.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let mut hash = ContentHash::default();
        hash.add_bytes(bytes);
        Self { hash: hash.0, adapters: Vec::new() }
    }

    /// Several neighbouring contents as one.
    pub(crate) fn together(parts: &[Arc<Content>]) -> Self {
        if let [content] = parts {
            return Self::clone(content);
        }
        let mut hash = ContentHash::default();
        parts.iter().for_each(|part| hash.add_content(part));
        Self { hash: hash.0, adapters: parts.iter().flat_map(|part| part.adapters.clone()).collect() }
    }
}

/// A running hash over 64-bit words.
#[derive(Default)]
struct ContentHash(u64);

impl ContentHash {
    fn add(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(23) ^ word).wrapping_add(word);
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        let words = bytes.chunks_exact(8);
        let mut rest = [0; 8];
        rest[..words.remainder().len()].copy_from_slice(words.remainder());
        words.for_each(|word| self.add(u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes"))));
        if !bytes.len().is_multiple_of(8) {
            self.add(u64::from_le_bytes(rest));
        }
    }

    fn add_content(&mut self, content: &Content) {
        self.add(content.hash);
        self.add(content.adapters.len() as u64);
        content.adapters.iter().for_each(|&adapter| self.add(adapter));
    }
}

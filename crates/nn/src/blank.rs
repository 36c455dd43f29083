//! Tensors without numbers: a model that is measured, not run.

use std::ops::Range;

use plimsoll_device::{HostBytes, ReadError};

/// So many bytes, all zero, that are nowhere until somebody reads them.
#[derive(Clone, Copy, Debug)]
pub struct BlankBytes {
    len: usize,
}

impl BlankBytes {
    /// `len` zeros.
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

impl HostBytes for BlankBytes {
    fn len(&self) -> usize {
        self.len
    }

    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} exceeds {} zeros", self.len);
        assert_eq!(range.len(), out.len(), "the destination has the length of the range");
        out.fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zeros() {
        let bytes = BlankBytes::new(5);
        let mut out = [7; 3];
        bytes.read_at(1..4, &mut out).unwrap();
        assert_eq!((bytes.len(), out), (5, [0; 3]));
    }
}

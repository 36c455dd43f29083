//! One tensor of a file: what it is, and how to read its bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_device::{ByteCount, HostBytes, ReadError};

use crate::StoredDType;
use crate::file_bytes::FileBytes;
use crate::header::TensorInfo;

/// One tensor of a file. Cheap to clone: the bytes stay where they are until they are read.
#[derive(Clone)]
pub struct StoredTensor {
    /// Its name. From a file, so it may hold any character.
    pub name: String,
    /// Row-major; empty for a single number.
    pub shape: Vec<usize>,
    /// The number format.
    pub dtype: StoredDType,
    /// Its bytes: little-endian numbers, row-major.
    pub bytes: Arc<dyn HostBytes>,
    /// The file that it is in, for messages.
    pub file: Arc<str>,
}

impl StoredTensor {
    pub(crate) fn new(info: TensorInfo, bytes: &Arc<FileBytes>, file: &Arc<str>) -> Self {
        let TensorInfo { name, dtype, shape, file_range } = info;
        let len = usize::try_from(file_range.end - file_range.start).expect("checked with the header");
        let bytes = Arc::new(TensorBytes { file: bytes.clone(), offset: file_range.start, len });
        Self { name, shape, dtype, bytes, file: file.clone() }
    }

    /// How many numbers it has.
    pub fn element_count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes that it takes in the file.
    pub fn size(&self) -> ByteCount {
        ByteCount::of(self.bytes.len())
    }

    /// All its bytes, in new memory. Blocks while the storage works.
    ///
    /// # Errors
    /// [`ReadError`] when the storage fails.
    pub fn read_all(&self) -> Result<Vec<u8>, ReadError> {
        let mut out = vec![0; self.bytes.len()];
        self.bytes.read_at(0..out.len(), &mut out)?;
        Ok(out)
    }
}

impl fmt::Debug for StoredTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredTensor({:?}: {} {:?} in `{}`)", self.name, self.dtype, self.shape, self.file)
    }
}

/// A range of a file.
struct TensorBytes {
    file: Arc<FileBytes>,
    offset: u64,
    len: usize,
}

impl TensorBytes {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

impl HostBytes for TensorBytes {
    fn len(&self) -> usize {
        self.len
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.file.as_slice(self.offset, self.len)
    }

    fn read_at(&self, range: Range<usize>, out: &mut [u8]) -> Result<(), ReadError> {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} exceeds a tensor of {} bytes", self.len);
        assert_eq!(range.len(), out.len(), "the destination has the length of the range");
        self.file.read_tensor_at(self.offset + range.start as u64, out, self.end())
    }

    fn read_ahead(&self) {
        self.file.read_ahead(self.offset..self.end());
    }
}

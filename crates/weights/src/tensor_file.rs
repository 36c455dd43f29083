//! One safetensors file, opened.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use plimsoll_device::ReadError;

use crate::file_bytes::FileBytes;
use crate::{DiskReads, Header, HeaderFault, StoredTensor};

/// One safetensors file, on disk or in memory, with a header that was checked as a whole.
pub struct TensorFile {
    bytes: Arc<FileBytes>,
    header: Header,
}

/// A file could not be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refuses: no such file, no right to read it, a broken link.
    #[error("`{file}` can't be opened: {reason}; check the path and its permissions")]
    CannotOpen {
        /// The path.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// A folder where a file is expected. Open it as a folder, or name a file in it.
    #[error("`{file}` is a folder, and a safetensors file is expected; name a file in it")]
    Directory {
        /// The path.
        file: String,
    },
    /// A pipe, a socket or a device, which can't be read by position. Save it as a file.
    #[error("`{file}` is no regular file, and weights are read by position; save it as a file")]
    NotRegular {
        /// The path.
        file: String,
    },
    /// The file's header is wrong.
    #[error("`{file}` can't be loaded: {fault}")]
    Header {
        /// The path.
        file: String,
        /// What is wrong.
        fault: HeaderFault,
    },
    /// The storage failed while the header was read. May be repeated.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl TensorFile {
    /// Opens a file and reads its header. Blocks while the storage works.
    ///
    /// # Errors
    /// [`OpenError`] when it can't be read or its header is wrong.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::new(FileBytes::open(path.as_ref())?)
    }

    /// A file that is in memory already, such as a model compiled into the program. `name` is for messages.
    ///
    /// # Errors
    /// [`OpenError::Header`].
    pub fn in_memory(name: &str, bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, OpenError> {
        Self::new(FileBytes::in_memory(name, bytes.into()))
    }

    fn new(bytes: FileBytes) -> Result<Self, OpenError> {
        let header = Header::parse(&bytes)?;
        Ok(Self { bytes: Arc::new(bytes), header })
    }

    /// What lies where in it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file's name for messages, fit to print.
    pub fn origin(&self) -> &str {
        self.bytes.origin()
    }

    /// How its bytes came from disk so far.
    pub fn disk_reads(&self) -> DiskReads {
        self.bytes.reads()
    }

    pub(crate) fn bytes(&self) -> &Arc<FileBytes> {
        &self.bytes
    }

    /// Its tensors, in the order of their bytes.
    pub fn tensors(&self) -> impl Iterator<Item = StoredTensor> + '_ {
        let file: Arc<str> = Arc::from(self.bytes.origin());
        self.header.tensors().iter().map(move |info| StoredTensor::new(info.clone(), &self.bytes, &file))
    }
}

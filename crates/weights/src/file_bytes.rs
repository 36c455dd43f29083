//! The bytes of one file: on disk, or in memory already.
//!
//! This is the crate's door to the disk. Reads are positional and leave no state behind. A file that is replaced by
//! renaming another over it keeps its old bytes here; one that is overwritten in place gives its new bytes, which
//! nobody can notice; one that was cut off gives a [`ReadError`] that says so.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use plimsoll_device::ReadError;

use crate::DiskReads;
use crate::disk_file::DiskFile;
use crate::printable::printable_path;
use crate::raw_file::{RawFile, SystemFile};
use crate::read_ahead::DiskTier;
use crate::tensor_file::OpenError;

/// The bytes of one file, and its name for messages.
pub(crate) struct FileBytes {
    origin: String,
    place: Place,
}

enum Place {
    Disk(Arc<DiskFile>),
    Memory(Cow<'static, [u8]>),
}

impl FileBytes {
    /// Opens a regular file (or a link to one), reading nothing.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let origin = printable_path(path);
        let cannot_open =
            |error: io::Error| OpenError::CannotOpen { file: printable_path(path), reason: error.to_string() };
        // Looked at before opening, because opening a pipe would wait for its writer.
        let metadata = std::fs::metadata(path).map_err(cannot_open)?;
        if metadata.is_dir() {
            return Err(OpenError::Directory { file: origin });
        }
        if !metadata.is_file() {
            return Err(OpenError::NotRegular { file: origin });
        }
        let file = File::open(path).map_err(cannot_open)?;
        Self::on_disk(origin, Box::new(SystemFile::new(file)), DiskTier::of_process()).map_err(cannot_open)
    }

    /// An open file.
    pub(crate) fn on_disk(origin: String, raw: Box<dyn RawFile>, tier: Arc<DiskTier>) -> io::Result<Self> {
        Ok(Self { origin, place: Place::Disk(Arc::new(DiskFile::new(raw, tier)?)) })
    }

    /// Bytes that are in memory already, under a name for messages.
    pub(crate) fn in_memory(name: &str, bytes: Cow<'static, [u8]>) -> Self {
        Self { origin: printable_path(Path::new(name)), place: Place::Memory(bytes) }
    }

    /// The file's name for messages, fit to print.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// How many bytes it had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        match &self.place {
            Place::Disk(file) => file.len(),
            Place::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// How its bytes came from disk so far.
    pub(crate) fn reads(&self) -> DiskReads {
        match &self.place {
            Place::Disk(file) => file.reads(),
            Place::Memory(_) => DiskReads::default(),
        }
    }

    /// `len` bytes from `offset` on, if they are in memory already.
    ///
    /// # Panics
    /// If they are in memory and the range exceeds it.
    pub(crate) fn as_slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        match &self.place {
            Place::Memory(bytes) => {
                let start = usize::try_from(offset).expect("a range of bytes in memory fits the address space");
                Some(&bytes[start..start + len])
            }
            Place::Disk(_) => None,
        }
    }

    /// Fills `out` with the bytes from `offset` on. For headers: through the page cache, which is right for the little
    /// that is read each time a file is opened.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.fill(offset, out, |file, out| file.read_plainly(offset, out))
    }

    /// Fills `out` with the bytes from `offset` on, which belong to a tensor that ends at `tensor_end`.
    pub(crate) fn read_tensor_at(&self, offset: u64, out: &mut [u8], tensor_end: u64) -> Result<(), ReadError> {
        self.fill(offset, out, |file, out| file.read(offset, out, tensor_end))
    }

    /// A hint that `range` will be read soon.
    pub(crate) fn read_ahead(&self, range: Range<u64>) {
        match &self.place {
            Place::Disk(file) => file.read_ahead(range),
            Place::Memory(_) => {}
        }
    }

    fn fill(
        &self,
        offset: u64,
        out: &mut [u8],
        read: impl FnOnce(&DiskFile, &mut [u8]) -> io::Result<()>,
    ) -> Result<(), ReadError> {
        match &self.place {
            Place::Memory(_) => {
                out.copy_from_slice(self.as_slice(offset, out.len()).expect("bytes in memory are a slice"));
                Ok(())
            }
            Place::Disk(file) => read(file, out).map_err(|error| ReadError {
                origin: self.origin.clone(),
                offset,
                len: out.len(),
                reason: read_failure(file, &error),
            }),
        }
    }
}

fn read_failure(file: &DiskFile, error: &io::Error) -> String {
    match file.len_now() {
        Ok(len_now) if error.kind() == io::ErrorKind::UnexpectedEof && len_now < file.len() => format!(
            "the file had {} bytes when it was opened and has {len_now} now; something cut it off, restore it",
            file.len()
        ),
        _ => format!("{error}; check the medium and run again"),
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBytes(`{}`)", self.origin)
    }
}

//! The bytes of one file: on disk, or in memory already.
//!
//! This is the crate's door to the disk. Reads are positional and leave no state behind. A file that is replaced by
//! renaming another over it keeps its old bytes here; one that is overwritten in place gives its new bytes, which
//! nobody can notice; one that was cut off gives a [`ReadError`] that says so.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::Path;

use plimsoll_device::ReadError;

use crate::printable::printable_path;
use crate::tensor_file::OpenError;

/// The bytes of one file, and its name for messages.
pub(crate) struct FileBytes {
    origin: String,
    len: u64,
    place: Place,
}

enum Place {
    Disk(PositionalFile),
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
        let len = file.metadata().map_err(cannot_open)?.len();
        Ok(Self { origin, len, place: Place::Disk(PositionalFile::new(file)) })
    }

    /// Bytes that are in memory already, under a name for messages.
    pub(crate) fn in_memory(name: &str, bytes: Cow<'static, [u8]>) -> Self {
        let len = bytes.len() as u64;
        Self { origin: printable_path(Path::new(name)), len, place: Place::Memory(bytes) }
    }

    /// The file's name for messages, fit to print.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// How many bytes it had when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.len
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

    /// Fills `out` with the bytes from `offset` on.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        match &self.place {
            Place::Memory(_) => {
                out.copy_from_slice(self.as_slice(offset, out.len()).expect("bytes in memory are a slice"));
                Ok(())
            }
            Place::Disk(file) => file.read_exact_at(offset, out).map_err(|error| ReadError {
                origin: self.origin.clone(),
                offset,
                len: out.len(),
                reason: self.read_failure(file, &error),
            }),
        }
    }

    fn read_failure(&self, file: &PositionalFile, error: &io::Error) -> String {
        match file.len() {
            Ok(len_now) if error.kind() == io::ErrorKind::UnexpectedEof && len_now < self.len => format!(
                "the file had {} bytes when it was opened and has {len_now} now; something cut it off, restore it",
                self.len
            ),
            _ => format!("{error}; check the medium and run again"),
        }
    }
}

/// A file that is read by position.
struct PositionalFile {
    file: File,
    /// Held from seek to read, where the system can't do both at once.
    #[cfg(not(unix))]
    cursor: std::sync::Mutex<()>,
}

impl PositionalFile {
    fn new(file: File) -> Self {
        Self {
            file,
            #[cfg(not(unix))]
            cursor: std::sync::Mutex::new(()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, out, offset)
    }

    #[cfg(not(unix))]
    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        use std::io::{Read, Seek, SeekFrom};

        let _held = self.cursor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(out)
    }
}

//! What the system does with an open file: reads by position, through the page cache or past it.
//!
//! A trait, so that tests can put a file in its place whose page cache and faults they decide. Only Linux is asked what
//! its page cache holds and to read past it; elsewhere both are [`Unsupported`](io::ErrorKind::Unsupported), and files
//! are read through the cache.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

/// An open file, as the system reads it. Every read may give fewer bytes than asked for.
pub(crate) trait RawFile: Send + Sync {
    /// How long it is now.
    fn len(&self) -> io::Result<u64>;

    /// Reads through the page cache; the system fetches these bytes, and doesn't guess what will be read next. 0 bytes
    /// at the file's end.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Reads through the page cache, as part of reading on: the system may read ahead. 0 bytes at the file's end.
    fn read_on_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Whether the page cache holds the byte at `offset`. If not, it may hold its page afterwards.
    ///
    /// # Errors
    /// See [`is_unsupported`] where nobody can tell.
    fn is_resident(&self, offset: u64) -> io::Result<bool>;

    /// Reads what the page cache holds from `offset` on, and doesn't wait for more. 0 bytes if it doesn't hold the
    /// first.
    ///
    /// # Errors
    /// See [`is_unsupported`] where nobody can tell.
    fn read_resident_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Reads past the page cache. `offset`, and the address and length of `out`, are multiples of
    /// [`ALIGN_BYTES`](crate::aligned_buffer::ALIGN_BYTES).
    ///
    /// # Errors
    /// See [`is_unsupported`] where the file system can't.
    fn read_direct_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Lets the page cache drop the page at `offset`.
    fn forget_page(&self, offset: u64);
}

/// Whether an error says that the system can't do this with this file at all.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    #[cfg(target_os = "linux")]
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::OPNOTSUPP) {
        return true;
    }
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
}

/// A file of the system.
pub(crate) struct SystemFile {
    file: File,
    #[cfg(target_os = "linux")]
    linux: LinuxViews,
    /// Held from seek to read, where the system can't do both at once.
    #[cfg(not(unix))]
    cursor: std::sync::Mutex<()>,
}

impl SystemFile {
    pub(crate) fn new(file: File) -> Self {
        // Advice only: without it the page cache gets more than it is meant to.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Self {
            file,
            #[cfg(target_os = "linux")]
            linux: LinuxViews::default(),
            #[cfg(not(unix))]
            cursor: std::sync::Mutex::new(()),
        }
    }
}

impl RawFile for SystemFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, out, offset)
    }

    #[cfg(not(unix))]
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        use std::io::{Read, Seek, SeekFrom};

        let _held = self.cursor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        file.read(out)
    }

    #[cfg(target_os = "linux")]
    fn read_on_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self.linux.read_on(&self.file), out, offset)
    }

    #[cfg(not(target_os = "linux"))]
    fn read_on_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.read_at(offset, out)
    }

    #[cfg(target_os = "linux")]
    fn is_resident(&self, offset: u64) -> io::Result<bool> {
        let disk_bytes_before = thread_disk_bytes();
        let answered = self.read_resident_at(offset, &mut [0])? > 0;
        Ok(answered && thread_disk_bytes() == disk_bytes_before)
    }

    #[cfg(target_os = "linux")]
    fn read_resident_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};

        match preadv2(&self.file, &mut [io::IoSliceMut::new(out)], offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
            read => Ok(read?),
        }
    }

    #[cfg(target_os = "linux")]
    fn read_direct_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self.linux.direct(&self.file)?, out, offset)
    }

    #[cfg(target_os = "linux")]
    fn forget_page(&self, offset: u64) {
        let page = std::num::NonZeroU64::new(crate::aligned_buffer::ALIGN_BYTES as u64);
        // Advice only: a system that doesn't take it keeps one page too many.
        let _ = rustix::fs::fadvise(&self.file, offset, page, rustix::fs::Advice::DontNeed);
    }

    #[cfg(not(target_os = "linux"))]
    fn is_resident(&self, _offset: u64) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(not(target_os = "linux"))]
    fn read_resident_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(not(target_os = "linux"))]
    fn read_direct_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(not(target_os = "linux"))]
    fn forget_page(&self, _offset: u64) {}
}

/// The same file, opened again with other properties when they are first wanted; `None` if it can't be.
#[cfg(target_os = "linux")]
#[derive(Default)]
struct LinuxViews {
    direct: OnceLock<Option<File>>,
    read_on: OnceLock<Option<File>>,
}

#[cfg(target_os = "linux")]
impl LinuxViews {
    /// Past the page cache.
    fn direct(&self, file: &File) -> io::Result<&File> {
        let direct = self.direct.get_or_init(|| open_again(file, rustix::fs::OFlags::DIRECT));
        direct.as_ref().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// With the kernel's own reading ahead, which knows of each opened file where it was read last.
    fn read_on<'a>(&'a self, file: &'a File) -> &'a File {
        let read_on = self.read_on.get_or_init(|| open_again(file, rustix::fs::OFlags::empty()));
        read_on.as_ref().unwrap_or(file)
    }
}

/// Opens the same file once more. Not by its path, where another file may be by now.
#[cfg(target_os = "linux")]
fn open_again(file: &File, flags: rustix::fs::OFlags) -> Option<File> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    let flags = i32::try_from(flags.bits()).ok()?;
    File::options().read(true).custom_flags(flags).open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// The bytes that this thread has had read from disks so far; `None` if the kernel doesn't count them.
///
/// A read that is told not to wait starts to fetch what is missing, and some disks are so fast that it finds it there
/// a moment later. This tells such an answer from one out of the page cache.
#[cfg(target_os = "linux")]
fn thread_disk_bytes() -> Option<u64> {
    thread_local! {
        static COUNTS: Option<File> = File::open("/proc/thread-self/io").ok();
    }
    let mut text = [0; 512];
    let len = COUNTS.with(|counts| std::os::unix::fs::FileExt::read_at(counts.as_ref()?, &mut text, 0).ok())?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

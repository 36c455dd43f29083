//! What would be left behind if the program ended now: the file that is being written, a folder still empty.
//!
//! A picture is written under a temporary name in its own folder, flushed to the disk, and renamed. Only one file is
//! written at a time; whoever ends the program holds the same lock, so a rename is never torn.

use std::fs::Metadata;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs_err as fs;
use tempfile::{NamedTempFile, PersistError, TempDir};

use crate::console;

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished { file: None, folder: None, scratch: None });

struct Unfinished {
    /// A file under its temporary name.
    file: Option<PathBuf>,
    /// A folder that was made for the files to come.
    folder: Option<PathBuf>,
    /// A folder whose files nobody will want.
    scratch: Option<PathBuf>,
}

/// Removes what is unfinished, says what happened, and ends the program.
pub(crate) fn end_program(what: &str, exit_code: i32) -> ! {
    let unfinished = lock();
    if let Some(path) = &unfinished.file {
        let _ = fs::remove_file(path);
    }
    remove_if_empty(unfinished.folder.as_deref());
    if let Some(path) = &unfinished.scratch {
        let _ = fs::remove_dir_all(path);
    }
    console::complain(what);
    std::process::exit(exit_code);
}

/// Makes a folder for files to come. One that somebody else has made in the meantime serves as well.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let mut unfinished = lock();
    match fs::create_dir(path) {
        Ok(()) => unfinished.folder = Some(path.to_owned()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Removes the folder that was made, if nothing was put into it.
pub(crate) fn abandon_folder() {
    remove_if_empty(lock().folder.take().as_deref());
}

fn remove_if_empty(folder: Option<&Path>) {
    if let Some(folder) = folder {
        // This fails when it is not empty.
        let _ = fs::remove_dir(folder);
    }
}

/// A folder in the system's place for temporary ones. Removed with its files when dropped.
pub(crate) fn scratch_folder() -> io::Result<TempDir> {
    let mut unfinished = lock();
    let folder = tempfile::Builder::new().prefix("plimsoll-").tempdir()?;
    unfinished.scratch = Some(folder.path().to_owned());
    Ok(folder)
}

/// Writes `bytes` to `path`, which appears complete or not at all. An existing file is replaced, as is the file that a
/// link leads to.
pub(crate) fn write_over(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = replaceable(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    write(folder, bytes, |file| file.persist(&path).map(drop).map_err(|refused| refused.error))
}

/// What would be replaced by a file written to `path`: that, or what a link leads to. It may not be there yet.
///
/// # Errors
/// For links that lead nowhere; for devices, pipes and sockets, which a file must not replace.
pub(crate) fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let path = if is_link { std::fs::canonicalize(path)? } else { path.to_owned() };
    match std::fs::metadata(&path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(io::Error::other("it is a device or a pipe")),
        _ => Ok(path),
    }
}

/// Writes `bytes` to the first of `paths`, all in `folder`, where nothing is yet. Gives that path.
///
/// A path is claimed and found free in one step, so programs that run at once take different ones.
pub(crate) fn write_new(folder: &Path, paths: impl Iterator<Item = PathBuf>, bytes: &[u8]) -> io::Result<PathBuf> {
    write(folder, bytes, |mut file| {
        for path in paths {
            match file.persist_noclobber(&path) {
                Ok(_) => return Ok(path),
                Err(PersistError { error, file: kept }) if error.kind() == ErrorKind::AlreadyExists => file = kept,
                Err(refused) => return Err(refused.error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    })
}

/// Whether files can be made in `folder`, found out by making one. Gives what the system says about that one.
pub(crate) fn probe(folder: &Path) -> io::Result<Metadata> {
    write(folder, b"", |file| {
        let metadata = file.as_file().metadata()?;
        file.close()?;
        Ok(metadata)
    })
}

/// Writes `bytes` to a new file in `folder`, which `settle` gives its name. It is removed when anything fails.
fn write<T>(folder: &Path, bytes: &[u8], settle: impl FnOnce(NamedTempFile) -> io::Result<T>) -> io::Result<T> {
    let mut file = begin(folder)?;
    let written = file.as_file_mut().write_all(bytes).and_then(|()| file.as_file().sync_all());
    let mut unfinished = lock();
    let outcome = written.and_then(|()| settle(file));
    unfinished.file = None;
    outcome
}

/// A new file under a temporary name. Short, because the final name may be as long as names can be.
fn begin(folder: &Path) -> io::Result<NamedTempFile> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut unfinished = lock();
    let mut builder = tempfile::Builder::new();
    builder.prefix(".plimsoll-").suffix(".tmp");
    // Temporary files are for their owner alone; pictures are as open as the user's mask lets them be.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder)?;
    unfinished.file = Some(file.path().to_owned());
    Ok(file)
}

fn lock() -> MutexGuard<'static, Unfinished> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        fs::write(&path, b"old").unwrap();
        probe(folder.path()).unwrap();
        write_over(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("child")).unwrap();
        assert!(write_over(&taken, b"new").is_err(), "a folder can't be replaced by a file");
        assert!(write_new(folder.path(), [taken].into_iter(), b"new").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(probe(&folder.path().join("missing")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.png"), b"old").unwrap();
        for (target, name) in [("a.png", "link"), ("nowhere", "dangling"), ("/dev/null", "device")] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        write_over(&at("link"), b"new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(fs::read(at("a.png")).unwrap(), b"new");
        for name in ["dangling", "device", "socket"] {
            assert!(write_over(&at(name), b"new").is_err(), "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_new_file_takes_the_first_free_path() {
        let folder = tempfile::tempdir().unwrap();
        let paths = || ["a", "b", "c"].map(|name| folder.path().join(name)).into_iter();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("b"), b"old").unwrap();
        assert_eq!(write_new(folder.path(), paths(), b"new").unwrap(), folder.path().join("c"));
        assert_eq!(fs::read(folder.path().join("b")).unwrap(), b"old");
        assert!(write_new(folder.path(), paths(), b"new").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_as_open_as_any_that_programs_make() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        fs::write(folder.path().join("plain"), b"").unwrap();
        write_over(&folder.path().join("picture"), b"").unwrap();
        assert_eq!(mode("picture"), mode("plain"));
    }
}

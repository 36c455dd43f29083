//! What would be left behind if the program ended now: the file that is being written, a folder still empty.
//!
//! A picture is written under a temporary name in its own folder, flushed to the disk, and renamed. Only one file is
//! written at a time; whoever ends the program holds the same lock, so a rename is never torn.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fs_err as fs;

static UNFINISHED: Mutex<Unfinished> = Mutex::new(Unfinished { file: None, folder: None });

struct Unfinished {
    /// A file under its temporary name.
    file: Option<PathBuf>,
    /// A folder that was made for the files to come.
    folder: Option<PathBuf>,
}

/// The exit code of a program ended by SIGINT, as shells count it.
const INTERRUPTED: i32 = 130;

/// From now on, an interrupt removes what is unfinished before it ends the program.
pub(crate) fn remove_on_interrupt() {
    // Without a handler the program still ends at an interrupt; only something unfinished might stay.
    let _ = ctrlc::set_handler(|| {
        let unfinished = lock();
        if let Some(path) = &unfinished.file {
            let _ = fs::remove_file(path);
        }
        remove_if_empty(unfinished.folder.as_deref());
        eprintln!("error: interrupted");
        std::process::exit(INTERRUPTED);
    });
}

/// Makes a folder for files to come.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let mut unfinished = lock();
    fs::create_dir(path)?;
    unfinished.folder = Some(path.to_owned());
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

/// Writes `bytes` to `path`, which appears complete or not at all. An existing file is replaced.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(path);
    lock().file = Some(temporary.clone());
    let written = write_synced(&temporary, bytes);
    let mut unfinished = lock();
    let outcome = written.and_then(|()| fs::rename(&temporary, path));
    if outcome.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    unfinished.file = None;
    outcome
}

/// Whether files can be made in `folder`, found out by making one.
pub(crate) fn probe(folder: &Path) -> io::Result<()> {
    let temporary = temporary_name(&folder.join("probe"));
    lock().file = Some(temporary.clone());
    let made = fs::OpenOptions::new().write(true).create_new(true).open(&temporary);
    let outcome = made.and_then(|_| fs::remove_file(&temporary));
    lock().file = None;
    outcome
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// A name in the same folder that no other run uses. Short, because the final name may be as long as names can be.
fn temporary_name(path: &Path) -> PathBuf {
    path.with_file_name(format!(".plimsoll-{}.tmp", std::process::id()))
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
        write_whole(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("child")).unwrap();
        assert!(write_whole(&taken, b"new").is_err(), "a folder can't be replaced by a file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(probe(&folder.path().join("missing")).is_err());
    }
}

//! Reads a whole file that somebody names: a regular one, of a size that is believable.

use std::io::Read;
use std::path::Path;

use anyhow::ensure;
use fs_err as fs;

use crate::failure::file_failure;

/// The bytes of the regular file at `path`, at most `bytes_max`.
///
/// # Errors
/// When it is missing or larger, can't be read, or is a pipe, a device or a folder: they may never end, or never begin.
pub(crate) fn read(path: &Path, bytes_max: u64, advice: &str) -> anyhow::Result<Vec<u8>> {
    let failure = |error| file_failure(path, "can't be read", &error, advice);
    let shown = path.display();
    ensure!(fs::metadata(path).map_err(failure)?.is_file(), "`{shown}` can't be read: it is no regular file; {advice}");
    let mut bytes = Vec::new();
    fs::File::open(path).map_err(failure)?.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failure)?;
    ensure!(
        bytes.len() as u64 <= bytes_max,
        "`{shown}` can't be read: it has more than {bytes_max} bytes, the most that are read; {advice}"
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5, "check it").unwrap(), b"12345");
        let line = |path: &Path| read(path, 4, "check it").unwrap_err().to_string();
        assert!(line(&path).ends_with("has more than 4 bytes, the most that are read; check it"), "{}", line(&path));
        assert!(line(folder.path()).ends_with("it is no regular file; check it"));
        assert!(line(&folder.path().join("none")).ends_with("no such file or folder; check it"));
        #[cfg(unix)]
        assert_eq!(line(Path::new("/dev/zero")), "`/dev/zero` can't be read: it is no regular file; check it");
    }
}

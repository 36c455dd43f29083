//! Where pictures go. Decided, and found writable, before any work starts.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use fs_err as fs;

use crate::failure::{Failure, file_failure};
use crate::{file_name, unfinished};

const EXTENSION: &str = "png";
const ELSEWHERE: &str = "choose another place with --out";

/// Where the pictures of one run go.
#[derive(Debug)]
pub(crate) struct Output {
    folder: PathBuf,
    name: Name,
    count: usize,
}

#[derive(Debug)]
enum Name {
    /// The one file that `--out` names; an existing one is replaced.
    Given(OsString),
    /// A stem, to which numbers are added until nothing is replaced.
    Free(String),
    /// A stem in a folder that `--out` names; existing files are replaced.
    Stem(String),
}

impl Output {
    /// Decides where `count` pictures of `prompt` go, makes the folder that `out` names if need be, and makes sure that
    /// files can be made there.
    ///
    /// # Errors
    /// [`Failure`] when `out` can't be meant, or can't be written.
    pub(crate) fn prepare(out: Option<&Path>, prompt: &str, seed: u64, count: usize) -> Result<Self, Failure> {
        let stem = file_name::stem(prompt, seed);
        let output = match out {
            None => Self { folder: PathBuf::from("."), name: Name::Free(stem), count },
            Some(out) if out.is_dir() => Self::in_folder(out, stem, count),
            Some(out) if is_picture(out) && !ends_with_separator(out) => {
                if count > 1 {
                    return Err(Failure::usage(format!(
                        "`--out {}` names one file, but {count} pictures are to be drawn; name a folder",
                        out.display()
                    )));
                }
                let name = out.file_name().expect("it has an extension").to_owned();
                Self { folder: parent(out), name: Name::Given(name), count }
            }
            Some(out) if count > 1 || ends_with_separator(out) => Self::in_folder(out, stem, count),
            Some(out) => {
                return Err(Failure::usage(format!(
                    "`--out {}` is neither a folder nor a file name ending in .png, the one format that is written",
                    out.display()
                )));
            }
        };
        output.make_folder()?;
        output.check_places().inspect_err(|_| unfinished::abandon_folder())?;
        Ok(output)
    }

    /// Writes the picture number `idx` of the run, complete or not at all.
    pub(crate) fn write(&self, idx: usize, png: &[u8]) -> anyhow::Result<PathBuf> {
        let mut paths = self.paths(idx);
        let first = paths.next().expect("every picture has a place");
        let written = match self.name {
            Name::Given(_) | Name::Stem(_) => unfinished::write_over(&first, png).map(|()| first.clone()),
            Name::Free(_) => unfinished::write_new(&self.folder, std::iter::once(first.clone()).chain(paths), png),
        };
        written.map_err(|error| file_failure(&first, "can't be written", &error, ELSEWHERE))
    }

    fn in_folder(folder: &Path, stem: String, count: usize) -> Self {
        Self { folder: folder.to_owned(), name: Name::Stem(stem), count }
    }

    fn make_folder(&self) -> Result<(), Failure> {
        let can_be_made = matches!(self.name, Name::Stem(_)) && !self.folder.exists();
        if can_be_made {
            let made = unfinished::make_folder(&self.folder);
            made.map_err(|error| file_failure(&self.folder, "can't be made", &error, ELSEWHERE))?;
        }
        Ok(())
    }

    /// Finds out what can be known before the work: that files can be made, under these names, in place of what is there.
    fn check_places(&self) -> Result<(), Failure> {
        let probed = unfinished::probe(&self.folder);
        let own = probed.map_err(|error| file_failure(&self.folder, "takes no file", &error, ELSEWHERE))?;
        let folder = fs::metadata(&self.folder);
        let folder = folder.map_err(|error| file_failure(&self.folder, "can't be read", &error, ELSEWHERE))?;
        for path in (0..self.count).filter_map(|idx| self.paths(idx).next()) {
            let replaced = match self.name {
                Name::Free(_) => path.clone(),
                _ => unfinished::replaceable(&path)
                    .map_err(|error| file_failure(&path, "can't be written", &error, ELSEWHERE))?,
            };
            match fs::symlink_metadata(&replaced) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(file_failure(&path, "can't be written", &error, ELSEWHERE).into()),
                Ok(_) if matches!(self.name, Name::Free(_)) => {}
                Ok(found) if found.is_dir() => {
                    return Err(Failure::usage(format!("`{}` is a folder; name a file with --out", path.display())));
                }
                Ok(found) if is_protected(&found, &folder, &own) => {
                    let shown = path.display();
                    return Err(anyhow!("`{shown}` can't be replaced: it is another user's; {ELSEWHERE}").into());
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Where the picture number `idx` may go, the first choice first.
    fn paths(&self, idx: usize) -> impl Iterator<Item = PathBuf> {
        let numbered = |stem: &str| match self.count {
            1 => stem.to_owned(),
            _ => format!("{stem}-{}", idx + 1),
        };
        let (first, free_stem) = match &self.name {
            Name::Given(name) => (name.clone(), None),
            Name::Stem(stem) => (format!("{}.{EXTENSION}", numbered(stem)).into(), None),
            Name::Free(stem) => (format!("{}.{EXTENSION}", numbered(stem)).into(), Some(numbered(stem))),
        };
        let later =
            free_stem.into_iter().flat_map(|stem| (2..).map(move |number| format!("{stem}_{number}.{EXTENSION}")));
        let names = std::iter::once(first).chain(later.map(OsString::from));
        names.map(|name| if self.folder == Path::new(".") { PathBuf::from(name) } else { self.folder.join(name) })
    }
}

/// Whether `folder` lets only the owner of `found` replace it, and that is not us. `own` is a file that we made.
#[cfg(unix)]
fn is_protected(found: &Metadata, folder: &Metadata, own: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    is_sticky_for((found.uid(), folder.uid(), own.uid()), folder.mode())
}

#[cfg(not(unix))]
fn is_protected(_found: &Metadata, _folder: &Metadata, _own: &Metadata) -> bool {
    false
}

/// The rule of sticky folders, for the users of the file, of the folder and of the program.
#[cfg(unix)]
fn is_sticky_for((file, folder, own): (u32, u32, u32), folder_mode: u32) -> bool {
    const STICKY: u32 = 0o1000;
    const ROOT: u32 = 0;
    folder_mode & STICKY != 0 && ![file, folder, ROOT].contains(&own)
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION))
}

fn ends_with_separator(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().last().is_some_and(|&byte| std::path::is_separator(byte.into()))
}

/// The folder that holds `path`.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_named_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        for content in [b"first", b"other"] {
            let output = Output::prepare(Some(&path), "red heart", 42, 1).unwrap();
            assert_eq!(output.write(0, content).unwrap(), path);
        }
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(names(folder.path()), ["a.png"]);
    }

    #[test]
    fn several_pictures_go_into_a_folder_that_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let output = Output::prepare(Some(&made), "red heart", 42, 2).unwrap();
        output.write(0, b"0").unwrap();
        output.write(1, b"1").unwrap();
        assert_eq!(names(&made), ["red-heart-42-1.png", "red-heart-42-2.png"]);
    }

    #[test]
    fn a_name_that_is_no_text_is_kept() {
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt;
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.png"));
            let output = Output::prepare(Some(&path), "red heart", 42, 1).unwrap();
            assert_eq!(output.write(0, b"x").unwrap(), path);
            assert!(path.exists());
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join(format!("{}.png", "a".repeat(300)));
        let refused = Output::prepare(Some(&long), "red heart", 42, 1).unwrap_err().line();
        assert!(refused.ends_with("the name is too long, or not possible here; choose another place with --out"));
        fs::create_dir(folder.path().join("red-heart-42-2.png")).unwrap();
        let refused = Output::prepare(Some(folder.path()), "red heart", 42, 2).unwrap_err().line();
        assert!(refused.ends_with("red-heart-42-2.png` is a folder; name a file with --out"), "{refused}");
        assert_eq!(names(folder.path()), ["red-heart-42-2.png"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_sticky_folder_protects_other_users_files() {
        assert!(is_sticky_for((1, 0, 2), 0o41777));
        assert!(!is_sticky_for((1, 0, 2), 0o40777), "not sticky");
        assert!(!is_sticky_for((2, 0, 2), 0o41777), "our file");
        assert!(!is_sticky_for((1, 2, 2), 0o41777), "our folder");
        assert!(!is_sticky_for((1, 2, 0), 0o41777), "the administrator may");
    }

    #[test]
    fn a_free_name_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let name = Name::Free("red-heart-42".to_owned());
        let output = Output { folder: folder.path().to_owned(), name, count: 1 };
        for _ in 0..3 {
            output.write(0, b"x").unwrap();
        }
        assert_eq!(names(folder.path()), ["red-heart-42.png", "red-heart-42_2.png", "red-heart-42_3.png"]);
    }
}

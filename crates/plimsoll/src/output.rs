//! Where pictures go. Decided, and found writable, before any work starts.

use std::path::{Path, PathBuf};

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
    Given(String),
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
                let name = out.file_name().expect("it has an extension").to_string_lossy().into_owned();
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
        Ok(output)
    }

    /// Writes the picture number `idx` of the run, complete or not at all.
    pub(crate) fn write(&self, idx: usize, png: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.path(idx);
        let written = unfinished::write_whole(&path, png);
        written.map_err(|error| file_failure(&path, "can't be written", &error, ELSEWHERE))?;
        Ok(path)
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
        if let Err(error) = unfinished::probe(&self.folder) {
            unfinished::abandon_folder();
            return Err(file_failure(&self.folder, "takes no file", &error, ELSEWHERE).into());
        }
        if let Name::Given(name) = &self.name
            && self.folder.join(name).is_dir()
        {
            let path = self.folder.join(name);
            return Err(Failure::usage(format!("`{}` is a folder; name a file with --out", path.display())));
        }
        Ok(())
    }

    fn path(&self, idx: usize) -> PathBuf {
        let numbered = |stem: &str| match self.count {
            1 => stem.to_owned(),
            _ => format!("{stem}-{}", idx + 1),
        };
        let name = match &self.name {
            Name::Given(name) => name.clone(),
            Name::Stem(stem) => format!("{}.{EXTENSION}", numbered(stem)),
            Name::Free(stem) => {
                let stem = numbered(stem);
                let later = (2..).map(|number| format!("{stem}_{number}.{EXTENSION}"));
                let mut names = std::iter::once(format!("{stem}.{EXTENSION}")).chain(later);
                names.find(|name| fs::symlink_metadata(self.folder.join(name)).is_err()).expect("a number is free")
            }
        };
        if self.folder == Path::new(".") { PathBuf::from(name) } else { self.folder.join(name) }
    }
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

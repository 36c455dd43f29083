//! Where a model's files are: a diffusers folder, or the program itself.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use plimsoll_weights::{IndexError, OpenError, TensorFile, TensorIndex};

/// Most bytes of a configuration file. The largest real ones have some kilobytes; listed betas may take a megabyte.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// A model in diffusers' layout: `model_index.json` and a folder for each component.
#[derive(Clone, Debug)]
pub enum ModelSource {
    /// A folder.
    Folder(PathBuf),
    /// Files that are part of the program.
    Embedded {
        /// The model's name.
        name: &'static str,
        /// Each file's path in the folder, with `/`, and its bytes.
        files: &'static [(&'static str, &'static [u8])],
    },
}

/// A file of a model can't be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no model here. Name a folder that has a `model_index.json`, as diffusers writes it.
    #[error(
        "`{path}` is no folder with a `model_index.json`; name a model in diffusers' layout, with `unet`, \
         `vae`, `text_encoder`, `tokenizer` and `scheduler` beside that file"
    )]
    NotAModel {
        /// The folder.
        path: String,
    },
    /// A file is missing. Fetch the model again.
    #[error("`{file}` of the model can't be read: {reason}; fetch the model again")]
    Missing {
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// A text file is far larger than any real one.
    #[error("`{file}` has more than {max} bytes, and no real file of its kind has; fetch the model again")]
    TooLarge {
        /// The file.
        file: String,
        /// The most that are read.
        max: u64,
    },
    /// The file is no UTF-8 text. Fetch the model again.
    #[error("`{file}` is not UTF-8 text; fetch the model again")]
    NotText {
        /// The file.
        file: String,
    },
    /// Weights can't be opened.
    #[error(transparent)]
    Weights(#[from] IndexError),
}

impl ModelSource {
    /// The model's name: its folder's, or the built-in one's.
    pub fn name(&self) -> String {
        match self {
            Self::Folder(path) => {
                let full = path.canonicalize().unwrap_or_else(|_| path.clone());
                full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned()
            }
            Self::Embedded { name, .. } => (*name).to_owned(),
        }
    }

    /// Where a file is, for messages.
    pub fn path_of(&self, file: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(file).display().to_string(),
            Self::Embedded { name, .. } => format!("{name}/{file}"),
        }
    }

    /// The bytes of a file, at most `bytes_max`, or `None` if there is no such file.
    ///
    /// # Errors
    /// [`SourceError`] if it is there and can't be read, is no regular file, or is larger.
    pub fn bytes(&self, file: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, SourceError> {
        match self {
            Self::Embedded { files, .. } => {
                Ok(files.iter().find(|(path, _)| *path == file).map(|(_, bytes)| bytes.to_vec()))
            }
            Self::Folder(folder) => read_file(&folder.join(file), bytes_max),
        }
    }

    /// The text of a configuration file.
    ///
    /// # Errors
    /// [`SourceError`] if it is missing or can't be read.
    pub fn text(&self, file: &str) -> Result<String, SourceError> {
        if let Self::Folder(path) = self
            && !path.is_dir()
        {
            return Err(SourceError::NotAModel { path: path.display().to_string() });
        }
        let bytes = self.bytes(file, CONFIG_BYTES_MAX)?.ok_or_else(|| match self {
            Self::Folder(path) if file == "model_index.json" => {
                SourceError::NotAModel { path: path.display().to_string() }
            }
            _ => SourceError::Missing { file: self.path_of(file), reason: "no such file".to_owned() },
        })?;
        String::from_utf8(bytes).map_err(|_| SourceError::NotText { file: self.path_of(file) })
    }

    /// The tensors of a component: headers only.
    ///
    /// # Errors
    /// [`SourceError::Weights`] if they can't be opened.
    pub fn tensors(&self, component: &str) -> Result<TensorIndex, SourceError> {
        match self {
            Self::Folder(folder) => Ok(TensorIndex::open(folder.join(component))?),
            Self::Embedded { files, .. } => {
                let found = files.iter().find(|(path, _)| {
                    path.strip_prefix(component).is_some_and(|rest| rest.starts_with('/'))
                        && path.ends_with(".safetensors")
                });
                let Some((path, bytes)) = found else {
                    let file = format!("{component}/*.safetensors");
                    return Err(SourceError::Missing { file, reason: "not part of the program".to_owned() });
                };
                let file = TensorFile::in_memory(path, *bytes).map_err(|error: OpenError| IndexError::from(error))?;
                Ok(TensorIndex::from_file(&file))
            }
        }
    }
}

/// Reads a regular file. What calls itself a file and is a device or a pipe may never end.
fn read_file(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, SourceError> {
    let file = || path.display().to_string();
    let missing = |reason: String| SourceError::Missing { file: file(), reason };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(missing(error.to_string())),
    };
    if !metadata.is_file() {
        return Err(missing("it is no regular file".to_owned()));
    }
    let opened = File::open(path).map_err(|error| missing(error.to_string()))?;
    let mut bytes = Vec::new();
    opened.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|error| missing(error.to_string()))?;
    if bytes.len() as u64 > bytes_max {
        return Err(SourceError::TooLarge { file: file(), max: bytes_max });
    }
    Ok(Some(bytes))
}

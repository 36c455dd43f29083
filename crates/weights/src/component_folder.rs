//! Which file of a component's folder holds its weights.
//!
//! diffusers calls it `diffusion_pytorch_model`, transformers `model`; either may be sharded, and either may be there
//! in half precision (`fp16`) only. Which one is meant is never guessed: two that could be meant are an error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::printable::{printable, printable_path};

const PLAIN_NAMES: [&str; 4] = [
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "model.safetensors",
    "model.safetensors.index.json",
];

/// Looked for when there is no plain file.
const HALF_PRECISION_NAMES: [&str; 4] = [
    "diffusion_pytorch_model.fp16.safetensors",
    "diffusion_pytorch_model.safetensors.index.fp16.json",
    "model.fp16.safetensors",
    "model.safetensors.index.fp16.json",
];

/// Endings of files that hold Python objects.
const PICKLE_ENDINGS: [&str; 5] = [".bin", ".ckpt", ".pt", ".pth", ".bin.index.json"];

/// A folder has no weights that can be used, or more than one file that could be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// There is nothing to load. Name another folder, or fetch the file.
    #[error("`{folder}` has no weights; fetch one of {expected}")]
    NoWeights {
        /// The folder.
        folder: String,
        /// Names that are looked for.
        expected: String,
    },
    /// The weights are Python objects, which may run code when loaded. Convert them, or fetch the safetensors file.
    #[error("`{folder}` has its weights as `{file}` only, and only safetensors is read; convert it to safetensors")]
    OnlyPickle {
        /// The folder.
        folder: String,
        /// A file in it.
        file: String,
    },
    /// Two files could be meant. Remove one, or name the file instead of the folder.
    #[error("`{folder}` has both `{first}` and `{second}`; name one of them instead of the folder, or remove one")]
    Ambiguous {
        /// The folder.
        folder: String,
        /// A file in it.
        first: String,
        /// Another file in it.
        second: String,
    },
}

/// The path of the safetensors file, or of the index of its shards, in a component's folder.
pub(crate) fn find_weights(folder: &Path) -> Result<Result<PathBuf, FolderError>, OpenError> {
    let names = file_names(folder)?;
    Ok(choose(&names, &printable_path(folder)).map(|name| folder.join(name)))
}

/// The name among `names` that is meant. Decides; reads nothing.
fn choose(names: &BTreeSet<String>, folder: &str) -> Result<&'static str, FolderError> {
    for candidates in [PLAIN_NAMES, HALF_PRECISION_NAMES] {
        let mut found = candidates.into_iter().filter(|name| names.contains(*name));
        match (found.next(), found.next()) {
            (Some(first), Some(second)) => {
                let (first, second) = (first.to_owned(), second.to_owned());
                return Err(FolderError::Ambiguous { folder: folder.to_owned(), first, second });
            }
            (Some(name), None) => return Ok(name),
            (None, _) => {}
        }
    }
    let folder = folder.to_owned();
    match names.iter().find(|name| PICKLE_ENDINGS.iter().any(|ending| name.ends_with(ending))) {
        Some(file) => Err(FolderError::OnlyPickle { folder, file: printable(file) }),
        None => {
            Err(FolderError::NoWeights { folder, expected: PLAIN_NAMES.map(|name| format!("`{name}`")).join(", ") })
        }
    }
}

fn file_names(folder: &Path) -> Result<BTreeSet<String>, OpenError> {
    let cannot_open =
        |error: std::io::Error| OpenError::CannotOpen { file: printable_path(folder), reason: error.to_string() };
    std::fs::read_dir(folder)
        .map_err(cannot_open)?
        .map(|entry| Ok(entry.map_err(cannot_open)?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &[&str], chosen: Result<&str, &str>) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let actual = choose(&names, "unet").map_err(|error| error.to_string());
        assert_eq!(actual.as_deref().map_err(String::as_str), chosen);
    }

    #[test]
    fn a_plain_file_goes_before_half_precision() {
        check(
            &["config.json", "model.fp16.safetensors", "model.safetensors", "pytorch_model.bin"],
            Ok("model.safetensors"),
        );
        check(
            &["diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.fp16.safetensors"],
            Ok("diffusion_pytorch_model.safetensors.index.json"),
        );
        check(&["model.fp16.safetensors", "model.bin"], Ok("model.fp16.safetensors"));
        check(&["model.safetensors.index.fp16.json"], Ok("model.safetensors.index.fp16.json"));
    }

    #[test]
    fn two_that_could_be_meant_are_an_error() {
        check(
            &["model.safetensors", "diffusion_pytorch_model.safetensors"],
            Err("`unet` has both `diffusion_pytorch_model.safetensors` and `model.safetensors`; \
                 name one of them instead of the folder, or remove one"),
        );
    }

    #[test]
    fn pickles_are_not_read() {
        check(
            &["config.json", "pytorch_model.bin"],
            Err("`unet` has its weights as `pytorch_model.bin` only, and only safetensors is read; \
                 convert it to safetensors"),
        );
        check(
            &["config.json"],
            Err("`unet` has no weights; fetch one of `diffusion_pytorch_model.safetensors`, \
                 `diffusion_pytorch_model.safetensors.index.json`, `model.safetensors`, \
                 `model.safetensors.index.json`"),
        );
    }
}

//! The files without which a part of a model is broken, by the kind of its class.

use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use fs_err as fs;
use plimsoll_pipeline::{TextLimits, Tokenizer};
use serde_json::Value;

use crate::regular_file;

/// The most bytes of a configuration that are read; the largest real ones are tokenizers of 33 MB.
const CONFIG_BYTES_MAX: u64 = 64 << 20;
const ADVICE: &str = "fetch the model again";

/// What a part is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A `config.json` and weights.
    Network,
    /// Numbers only, in the file of this name.
    Settings(&'static str),
    /// The one tokenizer that is known here.
    ClipTokenizer,
    /// Vocabularies of other forms.
    OtherTokenizer,
}

impl Kind {
    fn of(class: &str) -> Self {
        let ends_with_one_of = |ends: &[&str]| ends.iter().any(|end| class.ends_with(end));
        if ["CLIPTokenizer", "CLIPTokenizerFast"].contains(&class) {
            Self::ClipTokenizer
        } else if ends_with_one_of(&["Tokenizer", "TokenizerFast"]) {
            Self::OtherTokenizer
        } else if class.ends_with("Scheduler") {
            Self::Settings("scheduler_config.json")
        } else if ends_with_one_of(&["FeatureExtractor", "Processor", "ProcessorFast"]) {
            Self::Settings("preprocessor_config.json")
        } else {
            Self::Network
        }
    }
}

/// Reads what a part of this class must have beside weights. Gives whether it must have weights too.
///
/// # Errors
/// When a file is missing or can't be read, naming it.
pub(super) fn check(folder: &Path, class: &str) -> anyhow::Result<bool> {
    let kind = Kind::of(class);
    match kind {
        Kind::Network => drop(json(&folder.join("config.json"))?),
        Kind::Settings(file) => drop(json(&folder.join(file))?),
        Kind::ClipTokenizer => check_clip_tokenizer(folder)?,
        Kind::OtherTokenizer => check_other_tokenizer(folder)?,
    }
    Ok(kind == Kind::Network)
}

/// The object in a JSON file.
pub(super) fn json(path: &Path) -> anyhow::Result<Value> {
    let bytes = regular_file::read(path, CONFIG_BYTES_MAX, ADVICE)?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|error| anyhow!("`{}` is no JSON: {error}; fetch it again", path.display()))?;
    ensure!(value.is_object(), "`{}` is no configuration: it must be a JSON object; fetch it again", path.display());
    Ok(value)
}

fn check_clip_tokenizer(folder: &Path) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for name in Tokenizer::FILES {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            files.push((name, regular_file::read(&path, Tokenizer::FILE_BYTES_MAX.0, ADVICE)?));
        }
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    // Whether it suits the text encoder is another question.
    let limits = TextLimits { vocab_size: u32::MAX as usize, positions: usize::MAX };
    Tokenizer::new(&folder.display().to_string(), &files, limits)?;
    Ok(())
}

fn check_other_tokenizer(folder: &Path) -> anyhow::Result<()> {
    const VOCABULARIES: [&str; 5] =
        ["tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"];
    let mut found = VOCABULARIES.map(|name| folder.join(name)).into_iter().filter(|path| path.exists()).peekable();
    if found.peek().is_none() {
        bail!("`{}` has no vocabulary; expected is one of {}; {ADVICE}", folder.display(), VOCABULARIES.join(", "));
    }
    for path in found {
        if path.extension().is_some_and(|extension| extension == "json") {
            json(&path)?;
        } else {
            regular_file::read(&path, CONFIG_BYTES_MAX, ADVICE)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_tell_the_kind() {
        for (class, kind) in [
            ("UNet2DConditionModel", Kind::Network),
            ("StableDiffusionSafetyChecker", Kind::Network),
            ("CLIPTokenizer", Kind::ClipTokenizer),
            ("T5TokenizerFast", Kind::OtherTokenizer),
            ("DDIMScheduler", Kind::Settings("scheduler_config.json")),
            ("CLIPImageProcessor", Kind::Settings("preprocessor_config.json")),
            ("CLIPFeatureExtractor", Kind::Settings("preprocessor_config.json")),
        ] {
            assert_eq!(Kind::of(class), kind, "{class}");
        }
    }
}

//! The model and the upscaler that are part of the program, behind the feature `demo-model`.

use std::path::Path;

use plimsoll_pipeline::ModelSource;
use plimsoll_weights::TensorIndex;

use crate::failure::Failure;

/// The model in `folder`, or the built-in one if no folder is named.
pub(crate) fn model(folder: Option<&Path>) -> Result<ModelSource, Failure> {
    match folder {
        Some(folder) => Ok(ModelSource::Folder(folder.to_owned())),
        None => emoji64(),
    }
}

#[cfg(feature = "demo-model")]
macro_rules! asset {
    ($path:expr) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/", $path))
    };
}

#[cfg(feature = "demo-model")]
macro_rules! model_files {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, asset!(concat!($folder, "/", $path)))),*]
    };
}

#[cfg(feature = "demo-model")]
fn emoji64() -> Result<ModelSource, Failure> {
    const FILES: &[(&str, &[u8])] = model_files!("emoji64":
        "model_index.json",
        "scheduler/scheduler_config.json",
        "text_encoder/config.json",
        "text_encoder/model.safetensors",
        "tokenizer/merges.txt",
        "tokenizer/special_tokens_map.json",
        "tokenizer/tokenizer_config.json",
        "tokenizer/vocab.json",
        "unet/config.json",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "vae/diffusion_pytorch_model.safetensors",
    );
    Ok(ModelSource::Embedded { name: "emoji64", files: FILES })
}

#[cfg(not(feature = "demo-model"))]
fn emoji64() -> Result<ModelSource, Failure> {
    Err(Failure::usage("this program was built without its demo model; name a model folder with --model DIR"))
}

/// The built-in upscaler's tensors.
#[cfg(feature = "demo-model")]
pub(crate) fn upscaler() -> Result<TensorIndex, Failure> {
    const NAME: &str = "realesr-animevideov3-x4.safetensors";
    const BYTES: &[u8] = asset!("realesr-animevideov3-x4/realesr-animevideov3-x4.safetensors");
    let file = plimsoll_weights::TensorFile::in_memory(NAME, BYTES).map_err(anyhow::Error::new)?;
    Ok(TensorIndex::from_file(&file))
}

/// The built-in upscaler's tensors.
#[cfg(not(feature = "demo-model"))]
pub(crate) fn upscaler() -> Result<TensorIndex, Failure> {
    Err(Failure::usage("this program was built without its upscaler; leave out --upscale"))
}

//! Whose UNet is measured, and where its files are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use fs_err as fs;
use plimsoll_cpu::{CpuDevice, CpuOptions};
use plimsoll_device::{ByteCount, DType};
use plimsoll_models::unet::{Unet, UnetConfig};
use plimsoll_nn::Builder;
use plimsoll_pipeline::ModelSource;
use tempfile::TempDir;

use super::weights_file;
use crate::failure::Failure;
use crate::{built_in, unfinished};

/// The name of the built-in model.
const BUILT_IN: &str = "emoji64";
const SD15: &str = "shape:sd15";

/// What `--model` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BenchModel {
    /// The sizes of Stable Diffusion 1.5, with made-up weights.
    Sd15,
    /// The model that is part of the program.
    BuiltIn,
    /// A folder as diffusers writes it.
    Folder(PathBuf),
}

impl FromStr for BenchModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            SD15 => Ok(Self::Sd15),
            BUILT_IN => Ok(Self::BuiltIn),
            _ if text.starts_with("shape:") => Err(format!("there is one such shape here, {SD15}")),
            _ => Ok(Self::Folder(PathBuf::from(text))),
        }
    }
}

impl std::fmt::Display for BenchModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sd15 => f.write_str(SD15),
            Self::BuiltIn => f.write_str(BUILT_IN),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

impl BenchModel {
    /// The model's files.
    pub(super) fn source(&self) -> Result<ModelSource, Failure> {
        match self {
            Self::Sd15 => Err(Failure::usage(format!("{SD15} has no files; a case is measured on a folder"))),
            Self::BuiltIn => built_in::model(None),
            Self::Folder(path) => Ok(ModelSource::Folder(path.clone())),
        }
    }
}

/// A model whose files are there for as long as this lives.
pub(super) struct ModelFiles {
    argument: OsString,
    _scratch: Option<TempDir>,
}

impl ModelFiles {
    /// Makes files for a model that has none: with weights stored in `dtype`, on the disk when this returns.
    pub(super) fn prepare(model: &BenchModel, dtype: DType) -> Result<Self, Failure> {
        if *model != BenchModel::Sd15 {
            return Ok(Self { argument: OsString::from(model.to_string()), _scratch: None });
        }
        let scratch = unfinished::scratch_folder().context("no temporary folder can be made; check the disk")?;
        write_made_up(scratch.path(), SD15_UNET, dtype)?;
        Ok(Self { argument: scratch.path().into(), _scratch: Some(scratch) })
    }

    /// The `--model` that stands for it in another process.
    pub(super) fn argument(&self) -> &OsString {
        &self.argument
    }
}

/// Writes the `unet` folder of a model.
fn write_made_up(folder: &Path, config: &str, dtype: DType) -> anyhow::Result<()> {
    let unet = UnetConfig::parse(config).context("a built-in shape")?;
    // Only sizes are asked for: whatever the device, the tensors' shapes are the same.
    let device = CpuDevice::new(&CpuOptions { budget: ByteCount::MAX, threads: Some(1) })?;
    let builder = Builder::blank(&device, dtype);
    Unet::build(&builder, &unet).context("a built-in shape")?;
    let at = folder.join("unet");
    fs::create_dir(&at)?;
    fs::write(at.join("config.json"), config)?;
    weights_file::write(&at.join("diffusion_pytorch_model.safetensors"), &builder.tensors(), dtype)
}

/// Source: stable-diffusion-v1-5, unet/config.json.
const SD15_UNET: &str = r#"{
  "_class_name": "UNet2DConditionModel",
  "_diffusers_version": "0.6.0",
  "act_fn": "silu",
  "attention_head_dim": 8,
  "block_out_channels": [320, 640, 1280, 1280],
  "center_input_sample": false,
  "cross_attention_dim": 768,
  "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
  "downsample_padding": 1,
  "flip_sin_to_cos": true,
  "freq_shift": 0,
  "in_channels": 4,
  "layers_per_block": 2,
  "mid_block_scale_factor": 1,
  "norm_eps": 1e-05,
  "norm_num_groups": 32,
  "out_channels": 4,
  "sample_size": 64,
  "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"]
}
"#;

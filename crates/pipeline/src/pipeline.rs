//! An opened model: its configurations and headers read, its layers built, no weight loaded.

use std::sync::Arc;

use plimsoll_device::DType;
use plimsoll_models::ConfigError;
use plimsoll_models::clip::{ClipConfig, ClipTextEncoder};
use plimsoll_models::unet::{Unet, UnetConfig};
use plimsoll_models::vae::{VaeConfig, VaeDecoder, VaeEncoder};
use plimsoll_nn::Builder;
use plimsoll_residency::Manager;
use plimsoll_sampling::{NoiseConfig, Sampler, SigmaSchedule};
use plimsoll_weights::{TensorIndex, vae_attention_name};

use crate::model_index::{Family, ModelIndex};
use crate::phase_component::PhaseComponent;
use crate::source::ModelSource;
use crate::tokenizer::{TextLimits, Tokenizer};
use crate::{PipelineError, SourceError};

/// How a model is run, whatever is drawn.
#[derive(Clone, Copy, Debug)]
pub struct PipelineOptions {
    /// The format of weights and activations on the device: f32 or bf16.
    pub dtype: DType,
}

/// What is drawn when a request doesn't say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// Denoise steps.
    pub steps: usize,
    /// Classifier-free guidance: the `_guidance_scale` of `model_index.json`, or else what diffusers' pipelines have.
    pub guidance: f64,
    /// The sampler with the formulas of the model's own scheduler class; `euler` for a class that none is like.
    pub sampler: Sampler,
    /// The model's own spacing.
    pub schedule: SigmaSchedule,
    /// Pixels.
    pub width: usize,
    /// Pixels.
    pub height: usize,
}

/// A diffusion model, opened. Its components are the manager's: loaded for a phase at a time, and let go after it.
pub struct Pipeline {
    pub(crate) manager: Arc<Manager>,
    pub(crate) options: PipelineOptions,
    pub(crate) family: Family,
    pub(crate) texts: Vec<TextEncoder>,
    pub(crate) unet: PhaseComponent<Unet>,
    pub(crate) unet_config: UnetConfig,
    pub(crate) vae: PhaseComponent<VaeDecoder>,
    pub(crate) vae_config: VaeConfig,
    pub(crate) noise: NoiseConfig,
    vae_tensors: TensorIndex,
    name: String,
    /// What the model's makers recommend.
    guidance: Option<f64>,
}

/// A text encoder with its tokenizer.
pub(crate) struct TextEncoder {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) config: ClipConfig,
    pub(crate) encoder: PhaseComponent<ClipTextEncoder>,
    /// Whether its pooled text conditions the denoiser: the second one's of XL.
    pub(crate) gives_pooled: bool,
}

impl TextEncoder {
    /// Numbers of a pooled text.
    pub(crate) fn pooled_width(&self) -> usize {
        self.config.projection_dim.unwrap_or(self.config.hidden_size)
    }
}

impl Pipeline {
    /// Opens a model: reads configurations and headers. The budget of the manager's device is the line for everything
    /// drawn with it.
    ///
    /// # Errors
    /// [`PipelineError`] if a file is missing or wrong, or asks for something that is not supported.
    pub fn open(source: &ModelSource, manager: Arc<Manager>, options: PipelineOptions) -> Result<Self, PipelineError> {
        if options.dtype == DType::F16 {
            return Err(PipelineError::Request("the dtype f16 occurs in files only; use f32 or bf16".to_owned()));
        }
        let index = ModelIndex::parse(&source.text("model_index.json")?)
            .map_err(|reason| PipelineError::ModelIndex { file: source.path_of("model_index.json"), reason })?;
        let opener = Opener { source, manager: &manager, dtype: options.dtype };
        let texts = (0..index.family.text_encoder_count())
            .map(|idx| opener.text_encoder(idx))
            .collect::<Result<Vec<_>, _>>()?;
        let unet_config = opener.config("unet/config.json", UnetConfig::parse)?;
        let unet =
            opener.component("unet", source.tensors("unet")?, Unet::ignores, |b| Unet::build(b, &unet_config))?;
        let vae_config = opener.config("vae/config.json", VaeConfig::parse)?;
        let vae_tensors = source.tensors("vae")?.renamed(vae_attention_name)?;
        let vae =
            opener.component("vae", vae_tensors.clone(), VaeDecoder::ignores, |b| VaeDecoder::build(b, &vae_config))?;
        let scheduler = "scheduler/scheduler_config.json";
        let noise = NoiseConfig::from_json(&source.text(scheduler)?)
            .map_err(|error| PipelineError::Noise { file: source.path_of(scheduler), source: error })?;
        let name = source.name();
        let pipeline = Self {
            manager,
            options,
            family: index.family,
            guidance: index.guidance,
            texts,
            unet,
            unet_config,
            vae,
            vae_config,
            noise,
            vae_tensors,
            name,
        };
        pipeline.check_parts()?;
        Ok(pipeline)
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who loads its components.
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// Pixels for one latent, along each side. Widths and heights must be multiples of it.
    pub fn pixel_factor(&self) -> usize {
        self.vae_config.factor()
    }

    /// What is drawn when a request doesn't say.
    pub fn defaults(&self) -> Defaults {
        let [height, width] = self.unet_config.sample_size.unwrap_or([64, 64]);
        let factor = self.pixel_factor();
        let sampler = self.noise.sampler.unwrap_or(Sampler::Euler);
        let is_distilled = sampler == Sampler::Lcm;
        let steps = if is_distilled { 4 } else { 20 };
        let guidance = self.guidance.unwrap_or(match self.family {
            _ if is_distilled => 1.0,
            Family::StableDiffusion => 7.5,
            Family::StableDiffusionXl { .. } => 5.0,
        });
        let (width, height) = (width * factor, height * factor);
        Defaults { steps, guidance, sampler, schedule: SigmaSchedule::Model, width, height }
    }

    /// The encoding half of the autoencoder, which only image to image needs.
    pub(crate) fn vae_encoder(&self) -> Result<PhaseComponent<VaeEncoder>, PipelineError> {
        let build = |b: &Builder<'_>| VaeEncoder::build(b, &self.vae_config);
        PhaseComponent::build(
            "vae_encoder",
            &self.vae_tensors,
            &self.manager,
            self.options.dtype,
            VaeEncoder::ignores,
            build,
        )
    }

    /// Refuses parts whose sizes disagree, by name.
    fn check_parts(&self) -> Result<(), PipelineError> {
        let mismatch = |what: String| Err(PipelineError::Mismatch(what));
        let latent_channels = self.vae_config.latent_channels;
        let (input, output) = (self.unet_config.in_channels, self.unet_config.out_channels);
        if input != latent_channels || output != latent_channels {
            return mismatch(format!(
                "the VAE has {latent_channels} latent channels, and the UNet takes {input} and gives {output} \
                 (inpainting models are not supported yet)"
            ));
        }
        let width: usize = self.texts.iter().map(|text| text.config.hidden_size).sum();
        let blocks = self.unet_config.down_blocks.iter().chain(&self.unet_config.mid_block);
        let attentions = blocks.chain(&self.unet_config.up_blocks).filter_map(|block| block.attention.as_ref());
        if let Some(context_width) =
            attentions.map(|attention| attention.context_width).find(|&context_width| context_width != width)
        {
            return mismatch(format!(
                "the UNet attends to text of width {context_width}, and the text encoders give {width}"
            ));
        }
        let is_xl = matches!(self.family, Family::StableDiffusionXl { .. });
        if is_xl != self.unet_config.added.is_some() {
            return mismatch(
                "a UNet with `addition_embed_type` `text_time` belongs to StableDiffusionXLPipeline, and only to it"
                    .to_owned(),
            );
        }
        if self.vae_config.out_channels != 3 || self.vae_config.in_channels != 3 {
            return mismatch("the VAE must have 3 image channels".to_owned());
        }
        Ok(())
    }
}

/// Opens the parts of one model.
struct Opener<'a> {
    source: &'a ModelSource,
    manager: &'a Arc<Manager>,
    dtype: DType,
}

impl Opener<'_> {
    fn config<C>(&self, file: &str, parse: impl Fn(&str) -> Result<C, ConfigError>) -> Result<C, PipelineError> {
        let text = self.source.text(file)?;
        parse(&text).map_err(|source| PipelineError::Config { file: self.source.path_of(file), source })
    }

    fn component<M>(
        &self,
        name: &str,
        tensors: TensorIndex,
        ignores: fn(&str) -> bool,
        build: impl FnOnce(&Builder<'_>) -> Result<M, plimsoll_nn::BuildError>,
    ) -> Result<PhaseComponent<M>, PipelineError> {
        PhaseComponent::build(name, &tensors, self.manager, self.dtype, ignores, build)
    }

    /// `text_encoder` and `tokenizer`, or the second ones.
    fn text_encoder(&self, idx: usize) -> Result<TextEncoder, PipelineError> {
        let suffix = if idx == 0 { String::new() } else { format!("_{}", idx + 1) };
        let (name, folder) = (format!("text_encoder{suffix}"), format!("tokenizer{suffix}"));
        let config = self.config(&format!("{name}/config.json"), ClipConfig::parse)?;
        let tensors = self.source.tensors(&name)?;
        let encoder =
            self.component(&name, tensors, ClipTextEncoder::ignores, |b| ClipTextEncoder::build(b, &config))?;
        let limits = TextLimits { vocab_size: config.vocab_size, positions: config.max_position_embeddings };
        let tokenizer = self.tokenizer(&folder, limits)?;
        Ok(TextEncoder { tokenizer, config, encoder, gives_pooled: idx == 1 })
    }

    fn tokenizer(&self, folder: &str, limits: TextLimits) -> Result<Tokenizer, PipelineError> {
        let read = |name: &&'static str| {
            let bytes = self.source.bytes(&format!("{folder}/{name}"), Tokenizer::FILE_BYTES_MAX.0);
            bytes.map(|bytes| bytes.map(|bytes| (*name, bytes))).transpose()
        };
        let files = Tokenizer::FILES.iter().filter_map(read).collect::<Result<Vec<(&str, Vec<u8>)>, SourceError>>()?;
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        Ok(Tokenizer::new(folder, &files, limits)?)
    }
}

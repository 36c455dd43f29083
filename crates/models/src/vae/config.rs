//! An AutoencoderKL's config.json, as diffusers writes it.

use serde_json::json;

use super::LatentScale;
use crate::ConfigError;
use crate::fields::Fields;

const BLOCKS_MAX: usize = 16;
const CHANNELS_MAX: usize = 1 << 16;
const LAYERS_MAX: usize = 64;

/// What an autoencoder is. Source of the defaults: diffusers 0.42.1, models/autoencoders/autoencoder_kl.py,
/// `AutoencoderKL.__init__`.
#[derive(Clone, Debug, PartialEq)]
pub struct VaeConfig {
    /// Channels of the images it encodes.
    pub in_channels: usize,
    /// Channels of the images it decodes.
    pub out_channels: usize,
    /// Channels of each block, from the image inwards. Each block but the last halves the size.
    pub block_out_channels: Vec<usize>,
    /// Residual layers of each encoder block; decoder blocks have one more.
    pub layers_per_block: usize,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// Groups of all norms.
    pub norm_num_groups: usize,
    /// How latents are scaled for the diffusion model.
    pub latent_scale: LatentScale,
    /// Whether a 1x1 convolution follows the encoder.
    pub use_quant_conv: bool,
    /// Whether a 1x1 convolution precedes the decoder.
    pub use_post_quant_conv: bool,
    /// Whether the innermost block attends.
    pub mid_block_add_attention: bool,
}

impl VaeConfig {
    /// Reads a config.json.
    ///
    /// `force_upcast` says that f16 overflows; the f32 and bf16 used here have the range, so either value is fine.
    ///
    /// # Errors
    /// [`ConfigError`] for an unknown field, or a value that is out of range or of a model that isn't built here.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse("VAE", json)?;
        fields.expect_class("AutoencoderKL")?;
        let block_out_channels = fields.counts("block_out_channels", &[64], CHANNELS_MAX, BLOCKS_MAX)?;
        let block_count = block_out_channels.len();
        fields.choices("down_block_types", &[()], &[("DownEncoderBlock2D", ())], block_count)?;
        fields.choices("up_block_types", &[()], &[("UpDecoderBlock2D", ())], block_count)?;
        let latent_channels = fields.count("latent_channels", 4, CHANNELS_MAX)?;
        let config = Self {
            in_channels: fields.count("in_channels", 3, CHANNELS_MAX)?,
            out_channels: fields.count("out_channels", 3, CHANNELS_MAX)?,
            block_out_channels,
            layers_per_block: fields.count("layers_per_block", 1, LAYERS_MAX)?,
            latent_channels,
            norm_num_groups: fields.count("norm_num_groups", 32, CHANNELS_MAX)?,
            latent_scale: latent_scale(&mut fields, latent_channels)?,
            use_quant_conv: fields.flag("use_quant_conv", true)?,
            use_post_quant_conv: fields.flag("use_post_quant_conv", true)?,
            mid_block_add_attention: fields.flag("mid_block_add_attention", true)?,
        };
        if let Some(channels) = config.block_out_channels.iter().find(|c| !c.is_multiple_of(config.norm_num_groups)) {
            let supported = format!("a divisor of all `block_out_channels`, of which one is {channels}");
            return Err(fields.unsupported("norm_num_groups", &json!(config.norm_num_groups), supported));
        }
        fields.only("act_fn", &[json!("silu"), json!("swish")])?;
        fields.flag("force_upcast", true)?;
        fields.without_effect(&["sample_size"]);
        fields.finish()?;
        Ok(config)
    }

    /// Pixels of an image along one side of a latent's pixel.
    pub fn factor(&self) -> usize {
        1 << (self.block_out_channels.len() - 1)
    }
}

fn latent_scale(fields: &mut Fields, channels: usize) -> Result<LatentScale, ConfigError> {
    let usable = |factor: f64| (1e-12..1e12).contains(&factor.abs());
    let scaling = fields.number("scaling_factor", 0.18215, usable, "a number other than 0")?;
    let shift = fields.number("shift_factor", 0.0, |shift| shift.abs() < 1e12, "a number or null")?;
    let mean = fields.numbers("latents_mean", channels)?;
    let std = fields.numbers("latents_std", channels)?;
    let (mean, std) = match (mean, std) {
        (None, None) => {
            return Ok(LatentScale { scale: vec![scaling as f32; channels], shift: vec![shift as f32; channels] });
        }
        (Some(mean), Some(std)) => (mean, std),
        (mean, _) => {
            let given = if mean.is_some() { "latents_std" } else { "latents_mean" };
            let supported = "given too, for `latents_mean` and `latents_std` go together".to_owned();
            return Err(fields.unsupported(given, &json!(null), supported));
        }
    };
    if shift != 0.0 {
        let supported = "null beside `latents_mean`, which is a shift too".to_owned();
        return Err(fields.unsupported("shift_factor", &json!(shift), supported));
    }
    if std.iter().any(|std| !(1e-12..1e12).contains(std)) {
        return Err(fields.unsupported("latents_std", &json!(std), format!("a list of {channels} positive numbers")));
    }
    Ok(LatentScale {
        scale: std.iter().map(|std| (scaling / std) as f32).collect(),
        shift: mean.iter().map(|mean| *mean as f32).collect(),
    })
}

//! A UNet2DConditionModel's config.json, as diffusers writes it, resolved into what each block is.

use serde_json::{Value, json};

use super::BlockConfig;
use super::block_config::{Blocks, CHANNELS_MAX};
use crate::ConfigError;
use crate::fields::{Fields, count};

/// What a UNet is. Source of the defaults and of the fields' meanings: diffusers 0.42.1,
/// models/unets/unet_2d_condition.py, `UNet2DConditionModel.__init__` (#L171-L466).
#[derive(Clone, Debug, PartialEq)]
pub struct UnetConfig {
    /// Channels of the sample.
    pub in_channels: usize,
    /// Channels of the prediction.
    pub out_channels: usize,
    /// `[height, width]` of the samples it was trained on, if the config tells.
    pub sample_size: Option<[usize; 2]>,
    /// Whether samples are given in 0 to 1 and mapped to -1 to 1 first.
    pub center_input_sample: bool,
    /// How timesteps are embedded.
    pub time: TimeConfig,
    /// What else is embedded with the timestep.
    pub added: Option<AddedConfig>,
    /// From the sample inwards. Each but the last halves the size.
    pub down_blocks: Vec<BlockConfig>,
    /// The innermost block; its `layers` is the number of residual layers, each behind an attention but the first.
    pub mid_block: Option<BlockConfig>,
    /// From the inside outwards. Each but the last doubles the size.
    pub up_blocks: Vec<BlockConfig>,
    /// Groups of all norms.
    pub norm_num_groups: usize,
    /// Added to the variance by the residual layers' norms and the last norm.
    pub norm_eps: f32,
    /// Whether the attention blocks' outer projections are linear layers, not 1x1 convolutions.
    pub use_linear_projection: bool,
    /// Zeros at `[top, bottom, left, right]` where a block halves the size.
    pub downsample_padding: [usize; 4],
    /// Divides what the mid block's residual layers give.
    pub mid_block_scale_factor: f32,
    /// Size of the first convolution's kernel, odd.
    pub conv_in_kernel: usize,
    /// Size of the last convolution's kernel, odd.
    pub conv_out_kernel: usize,
}

/// How timesteps are embedded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeConfig {
    /// Sines and cosines.
    pub channels: usize,
    /// Features of the embedding.
    pub width: usize,
    /// Whether cosines come first.
    pub flip_sin_to_cos: bool,
    /// Subtracted from the number of frequencies.
    pub freq_shift: f32,
}

/// SDXL's added conditioning (`text_time`): pooled text and a few numbers about the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedConfig {
    /// Sines and cosines for each number.
    pub time_channels: usize,
    /// Features of the pooled text and of all numbers together.
    pub input_width: usize,
}

impl UnetConfig {
    /// Reads a config.json.
    ///
    /// `num_attention_heads` is null in most configs, and `attention_head_dim` is the number of heads then, against its
    /// name (diffusers issue 2011). `upcast_attention` asks for f32 sums, which all sums here are.
    ///
    /// # Errors
    /// [`ConfigError`] for an unknown field, or a value that is out of range or of a model that isn't built here.
    pub fn parse(json: &str) -> Result<Self, ConfigError> {
        let mut fields = Fields::parse("UNet", json)?;
        fields.expect_class("UNet2DConditionModel")?;
        refuse_other_kinds(&mut fields)?;
        let blocks = Blocks::parse(&mut fields)?;
        let norm_num_groups = fields.count("norm_num_groups", 32, CHANNELS_MAX)?;
        if let Some(channels) = blocks.channels.iter().find(|channels| !channels.is_multiple_of(norm_num_groups)) {
            let supported = format!("a divisor of all `block_out_channels`, of which one is {channels}");
            return Err(fields.unsupported("norm_num_groups", &json!(norm_num_groups), supported));
        }
        let (time, added) = embeddings(&mut fields, blocks.channels[0])?;
        let one_or_more = "a positive number";
        let config = Self {
            in_channels: fields.count("in_channels", 4, CHANNELS_MAX)?,
            out_channels: fields.count("out_channels", 4, CHANNELS_MAX)?,
            sample_size: sample_size(&mut fields)?,
            center_input_sample: fields.flag("center_input_sample", false)?,
            time,
            added,
            down_blocks: blocks.down(),
            mid_block: blocks.mid(),
            up_blocks: blocks.up(),
            norm_num_groups,
            norm_eps: fields.number("norm_eps", 1e-5, |eps| eps > 0.0 && eps < 1.0, "a number between 0 and 1")? as f32,
            use_linear_projection: fields.flag("use_linear_projection", false)?,
            downsample_padding: downsample_padding(&mut fields)?,
            mid_block_scale_factor: fields.number(
                "mid_block_scale_factor",
                1.0,
                |factor| factor > 1e-6 && factor < 1e6,
                one_or_more,
            )? as f32,
            conv_in_kernel: kernel(&mut fields, "conv_in_kernel")?,
            conv_out_kernel: kernel(&mut fields, "conv_out_kernel")?,
        };
        fields.flag("upcast_attention", false)?;
        // Dropout acts in training only; the number of heads belongs to `addition_embed_type` "text".
        fields.without_effect(&["dropout", "addition_embed_type_num_heads"]);
        fields.finish()?;
        Ok(config)
    }

    /// By how much the innermost block is smaller than the sample, along each side.
    pub fn downscale(&self) -> usize {
        1 << (self.down_blocks.len() - 1)
    }
}

/// Fields that select models of other kinds: only their plain values are accepted.
fn refuse_other_kinds(fields: &mut Fields) -> Result<(), ConfigError> {
    fields.only("act_fn", &[json!("silu"), json!("swish")])?;
    fields.only("attention_type", &[json!("default")])?;
    fields.only("resnet_time_scale_shift", &[json!("default")])?;
    fields.only("time_embedding_type", &[json!("positional")])?;
    fields.only("dual_cross_attention", &[json!(false)])?;
    fields.only("class_embeddings_concat", &[json!(false)])?;
    fields.only("resnet_skip_time_act", &[json!(false)])?;
    fields.only("resnet_out_scale_factor", &[json!(1.0)])?;
    fields.only("mid_block_only_cross_attention", &[json!(false)])?;
    for field in [
        "class_embed_type",
        "num_class_embeds",
        "encoder_hid_dim",
        "encoder_hid_dim_type",
        "time_embedding_act_fn",
        "timestep_post_act",
        "time_cond_proj_dim",
        "cross_attention_norm",
    ] {
        fields.only(field, &[])?;
    }
    Ok(())
}

fn embeddings(fields: &mut Fields, channels: usize) -> Result<(TimeConfig, Option<AddedConfig>), ConfigError> {
    let width = fields.count("time_embedding_dim", channels * 4, CHANNELS_MAX * 4)?;
    let flip_sin_to_cos = fields.flag("flip_sin_to_cos", true)?;
    let has_added = fields.get("addition_embed_type").is_some_and(|kind| !kind.is_null());
    fields.only("addition_embed_type", &[json!("text_time")])?;
    let time_channels = fields.optional_count("addition_time_embed_dim", CHANNELS_MAX)?;
    let input_width = fields.optional_count("projection_class_embeddings_input_dim", CHANNELS_MAX * 4)?;
    let missing = |fields: &Fields, field: &str| {
        fields.unsupported(field, &Value::Null, "given, for `addition_embed_type` is `text_time`".to_owned())
    };
    let added = match (has_added, time_channels, input_width) {
        (false, _, _) => None,
        (true, Some(time_channels), Some(input_width)) => Some(AddedConfig { time_channels, input_width }),
        (true, None, _) => return Err(missing(fields, "addition_time_embed_dim")),
        (true, _, None) => return Err(missing(fields, "projection_class_embeddings_input_dim")),
    };
    for (field, channels) in [
        ("block_out_channels", channels),
        ("addition_time_embed_dim", added.map_or(channels, |added| added.time_channels)),
    ] {
        if channels < 2 {
            let supported = "at least 2, for a sine and a cosine of the timestep".to_owned();
            return Err(fields.unsupported(field, &json!(channels), supported));
        }
    }
    let frequencies = added.map_or(channels, |added| added.time_channels.min(channels)) / 2;
    let freq_shift = fields.number(
        "freq_shift",
        0.0,
        |shift| (0.0..frequencies as f64).contains(&shift),
        &format!("a number from 0 to below {frequencies}, the frequencies of the embedding"),
    )? as f32;
    Ok((TimeConfig { channels, width, flip_sin_to_cos, freq_shift }, added))
}

fn sample_size(fields: &mut Fields) -> Result<Option<[usize; 2]>, ConfigError> {
    let Some(value) = fields.take("sample_size") else { return Ok(None) };
    let side = |value: &Value| count(value, 1, CHANNELS_MAX);
    let size = match value.as_array().map(Vec::as_slice) {
        None => side(&value).map(|side| [side, side]),
        Some([height, width]) => side(height).zip(side(width)).map(|(height, width)| [height, width]),
        Some(_) => None,
    };
    match size {
        Some(size) => Ok(Some(size)),
        None => Err(fields.unsupported("sample_size", &value, "a whole number, two of them, or null".to_owned())),
    }
}

/// With padding 0, diffusers pads bottom and right by one before the convolution.
/// Source: diffusers 0.42.1, models/downsampling.py, `Downsample2D.forward`.
fn downsample_padding(fields: &mut Fields) -> Result<[usize; 4], ConfigError> {
    match fields.take("downsample_padding") {
        None => Ok([1, 1, 1, 1]),
        Some(value) => match value.as_u64() {
            Some(0) => Ok([0, 1, 0, 1]),
            Some(1) => Ok([1, 1, 1, 1]),
            _ => Err(fields.unsupported("downsample_padding", &value, "0 or 1".to_owned())),
        },
    }
}

fn kernel(fields: &mut Fields, field: &'static str) -> Result<usize, ConfigError> {
    let size = fields.count(field, 3, 15)?;
    match size % 2 {
        1 => Ok(size),
        _ => Err(fields.unsupported(field, &json!(size), "odd, so that the size of the image is kept".to_owned())),
    }
}

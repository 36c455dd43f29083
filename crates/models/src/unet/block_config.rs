//! What a UNet's config says per block.

use serde_json::{Value, json};

use crate::ConfigError;
use crate::fields::{Fields, count};

pub(super) const CHANNELS_MAX: usize = 1 << 16;
const BLOCKS_MAX: usize = 16;
const LAYERS_MAX: usize = 64;
const TRANSFORMERS_MAX: usize = 128;

/// What a block is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// Channels of its output.
    pub channels: usize,
    /// Residual layers.
    pub layers: usize,
    /// The attention behind each residual layer.
    pub attention: Option<AttentionConfig>,
}

/// What a block's attention is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttentionConfig {
    /// Heads.
    pub heads: usize,
    /// Features of a text token.
    pub context_width: usize,
    /// Transformer layers behind each residual layer.
    pub depths: Vec<usize>,
    /// Whether the first attention of a transformer layer looks at the text too, not at the image.
    pub only_cross_attention: bool,
}

/// Everything that the config gives per block, from the sample inwards.
pub(super) struct Blocks {
    pub(super) channels: Vec<usize>,
    layers: Vec<usize>,
    heads: Vec<usize>,
    context_widths: Vec<usize>,
    only_cross_attention: Vec<bool>,
    /// Transformer layers behind each residual layer of the down blocks.
    down_depths: Vec<Vec<usize>>,
    mid_depth: usize,
    /// The same for the up blocks, from the inside outwards.
    up_depths: Vec<Vec<usize>>,
    down_attend: Vec<bool>,
    mid: Mid,
    up_attend: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mid {
    CrossAttn,
    Plain,
    Absent,
}

impl Blocks {
    pub(super) fn parse(fields: &mut Fields) -> Result<Self, ConfigError> {
        let channels = fields.counts("block_out_channels", &[320, 640, 1280, 1280], CHANNELS_MAX, BLOCKS_MAX)?;
        let count = channels.len();
        let down = [("DownBlock2D", false), ("CrossAttnDownBlock2D", true)];
        let up = [("UpBlock2D", false), ("CrossAttnUpBlock2D", true)];
        let down_attend = fields.choices("down_block_types", &[true, true, true, false], &down, count)?;
        let up_attend = fields.choices("up_block_types", &[false, true, true, true], &up, count)?;
        let layers = fields.counts_per_block("layers_per_block", count, LAYERS_MAX)?.unwrap_or(vec![2; count]);
        let context_widths = fields.counts_per_block("cross_attention_dim", count, CHANNELS_MAX)?;
        let depths = Depths::parse(fields, &layers)?;
        let (heads_field, heads) = heads(fields, count)?;
        let blocks = Self {
            heads,
            context_widths: context_widths.unwrap_or(vec![1280; count]),
            only_cross_attention: only_cross_attention(fields, count)?,
            down_depths: depths.down,
            mid_depth: depths.mid,
            up_depths: depths.up,
            mid: mid(fields)?,
            channels,
            layers,
            down_attend,
            up_attend,
        };
        blocks.check_heads(fields, heads_field)?;
        Ok(blocks)
    }

    pub(super) fn down(&self) -> Vec<BlockConfig> {
        let attention = |idx: usize| self.attention(idx, self.down_depths[idx].clone());
        (0..self.channels.len())
            .map(|idx| BlockConfig {
                channels: self.channels[idx],
                layers: self.layers[idx],
                attention: self.down_attend[idx].then(|| attention(idx)),
            })
            .collect()
    }

    pub(super) fn mid(&self) -> Option<BlockConfig> {
        let idx = self.channels.len() - 1;
        let channels = self.channels[idx];
        match self.mid {
            Mid::Absent => None,
            Mid::Plain => Some(BlockConfig { channels, layers: 1, attention: None }),
            Mid::CrossAttn => {
                let mut attention = self.attention(idx, vec![self.mid_depth]);
                attention.only_cross_attention = false;
                Some(BlockConfig { channels, layers: 2, attention: Some(attention) })
            }
        }
    }

    pub(super) fn up(&self) -> Vec<BlockConfig> {
        let block = |(position, idx): (usize, usize)| BlockConfig {
            channels: self.channels[idx],
            layers: self.layers[idx] + 1,
            attention: self.up_attend[position].then(|| self.attention(idx, self.up_depths[position].clone())),
        };
        (0..self.channels.len()).rev().enumerate().map(block).collect()
    }

    fn attention(&self, idx: usize, depths: Vec<usize>) -> AttentionConfig {
        AttentionConfig {
            heads: self.heads[idx],
            context_width: self.context_widths[idx],
            depths,
            only_cross_attention: self.only_cross_attention[idx],
        }
    }

    /// The heads of a block that attends must divide its channels.
    fn check_heads(&self, fields: &Fields, field: &str) -> Result<(), ConfigError> {
        let last = self.channels.len() - 1;
        for (idx, (channels, heads)) in self.channels.iter().zip(&self.heads).enumerate() {
            let attends =
                self.down_attend[idx] || self.up_attend[last - idx] || (idx == last && self.mid == Mid::CrossAttn);
            if attends && !channels.is_multiple_of(*heads) {
                let supported = format!("a number of heads that divides the {channels} channels of block {idx}");
                return Err(fields.unsupported(field, &json!(heads), supported));
            }
        }
        Ok(())
    }
}

/// The number of heads of each block, and the field it stands in.
fn heads(fields: &mut Fields, block_count: usize) -> Result<(&'static str, Vec<usize>), ConfigError> {
    let misnamed = fields.counts_per_block("attention_head_dim", block_count, CHANNELS_MAX)?;
    let named = fields.counts_per_block("num_attention_heads", block_count, CHANNELS_MAX)?;
    Ok(match named {
        Some(heads) => ("num_attention_heads", heads),
        None => ("attention_head_dim", misnamed.unwrap_or(vec![8; block_count])),
    })
}

fn mid(fields: &mut Fields) -> Result<Mid, ConfigError> {
    if fields.get("mid_block_type").is_some_and(Value::is_null) {
        fields.take("mid_block_type");
        return Ok(Mid::Absent);
    }
    let choices = [("UNetMidBlock2DCrossAttn", Mid::CrossAttn), ("UNetMidBlock2D", Mid::Plain)];
    fields.choice("mid_block_type", Mid::CrossAttn, &choices)
}

fn only_cross_attention(fields: &mut Fields, block_count: usize) -> Result<Vec<bool>, ConfigError> {
    let Some(value) = fields.take("only_cross_attention") else { return Ok(vec![false; block_count]) };
    let flags = match &value {
        Value::Bool(flag) => Some(vec![*flag; block_count]),
        Value::Array(list) if list.len() == block_count => list.iter().map(Value::as_bool).collect(),
        _ => None,
    };
    match flags {
        Some(flags) => Ok(flags),
        None => {
            let supported = format!("true, false, or a list of {block_count} of them");
            Err(fields.unsupported("only_cross_attention", &value, supported))
        }
    }
}

/// Transformer layers behind each residual layer.
struct Depths {
    down: Vec<Vec<usize>>,
    mid: usize,
    up: Vec<Vec<usize>>,
}

impl Depths {
    /// `transformer_layers_per_block` is a number, a number per block, or a number per residual layer of a block. In the
    /// last case up blocks, which have one residual layer more, need a list of their own, from the inside outwards.
    fn parse(fields: &mut Fields, layers: &[usize]) -> Result<Self, ConfigError> {
        let name = "transformer_layers_per_block";
        let value = fields.take(name).unwrap_or(Value::from(1));
        let per_block = match &value {
            Value::Array(list) => list.clone(),
            number => vec![number.clone(); layers.len()],
        };
        let down = per_layer(&per_block, layers)
            .ok_or_else(|| fields.unsupported(name, &value, depths_supported(layers.len())))?;

        let reverse_name = "reverse_transformer_layers_per_block";
        let up_layers: Vec<usize> = layers.iter().rev().map(|layers| layers + 1).collect();
        let up = match fields.take(reverse_name) {
            Some(reverse) => {
                let list = reverse.as_array().map(Vec::as_slice).unwrap_or_default();
                per_layer(list, &up_layers)
                    .ok_or_else(|| fields.unsupported(reverse_name, &reverse, depths_supported(layers.len())))?
            }
            None if per_block.iter().any(Value::is_array) => {
                let supported = format!("given, for `{name}` has a list for a block");
                return Err(fields.unsupported(reverse_name, &Value::Null, supported));
            }
            None => {
                let reversed: Vec<Value> = per_block.iter().rev().cloned().collect();
                per_layer(&reversed, &up_layers).expect("the numbers are those of the down blocks")
            }
        };
        let mid = down.last().and_then(|depths| depths.first()).copied().unwrap_or(1);
        Ok(Self { down, mid, up })
    }
}

/// For each block as many depths as it has layers, from a number or a list for each block.
fn per_layer(per_block: &[Value], layers: &[usize]) -> Option<Vec<Vec<usize>>> {
    let depth = |value: &Value| count(value, 0, TRANSFORMERS_MAX);
    let block = |(value, layers): (&Value, &usize)| match value {
        Value::Array(list) if list.len() == *layers => list.iter().map(depth).collect(),
        Value::Array(_) => None,
        number => depth(number).map(|depth| vec![depth; *layers]),
    };
    if per_block.len() == layers.len() { per_block.iter().zip(layers).map(block).collect() } else { None }
}

fn depths_supported(block_count: usize) -> String {
    format!(
        "a whole number up to {TRANSFORMERS_MAX}, or for each of {block_count} blocks a number or a list of one for each layer"
    )
}

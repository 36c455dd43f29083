//! The blocks of a UNet: down, mid and up.

use plimsoll_nn::{BuildError, Builder, Conv2d, NnError, Run};
use plimsoll_tensor::Tensor;

use super::transformer::{Transformer, TransformerSpec};
use super::{BlockConfig, UnetConfig};
use crate::resnet::{Resnet, ResnetSpec, downsampler, upsampler};

/// What every layer of a block gets beside the image.
#[derive(Clone, Copy)]
pub(super) struct Conditions<'a> {
    /// `silu` of the time embedding, `[batch, time width]`.
    pub(super) time: &'a Tensor,
    /// `[batch, tokens, context width]`.
    pub(super) context: &'a Tensor,
}

/// A residual layer and the attention behind it.
#[derive(Debug)]
struct Layer {
    resnet: Resnet,
    attention: Option<Transformer>,
}

impl Layer {
    /// The `idx`th layer of a block that lies at `b`.
    fn build(
        b: &Builder<'_>,
        idx: usize,
        in_channels: usize,
        block: &BlockConfig,
        config: &UnetConfig,
    ) -> Result<Self, BuildError> {
        let resnet = Resnet::build(&b.sub("resnets").sub(idx), &config.resnet(in_channels, block.channels, 1.0))?;
        let attention = match &block.attention {
            None => None,
            Some(attention) => {
                let spec = config.transformer(block.channels);
                let depth = attention.depths[idx];
                Some(Transformer::build(&b.sub("attentions").sub(idx), &spec, attention, depth)?)
            }
        };
        Ok(Self { resnet, attention })
    }

    fn forward(&self, run: &Run<'_>, x: Tensor, conditions: &Conditions<'_>) -> Result<Tensor, NnError> {
        let x = self.resnet.forward(run, x, Some(conditions.time))?;
        match &self.attention {
            None => Ok(x),
            Some(attention) => attention.forward(run, x, conditions.context),
        }
    }
}

/// Source: diffusers 0.42.1, models/unets/unet_2d_blocks.py, `DownBlock2D` and `CrossAttnDownBlock2D`.
#[derive(Debug)]
pub(super) struct DownBlock {
    layers: Vec<Layer>,
    downsampler: Option<Conv2d>,
}

impl DownBlock {
    /// The block at `b`, behind one of `in_channels`; with a downsampler unless it is the last.
    pub(super) fn build(
        b: &Builder<'_>,
        in_channels: usize,
        block: &BlockConfig,
        config: &UnetConfig,
        is_last: bool,
    ) -> Result<Self, BuildError> {
        let layer = |idx| {
            let in_channels = if idx == 0 { in_channels } else { block.channels };
            Layer::build(b, idx, in_channels, block, config)
        };
        Ok(Self {
            layers: (0..block.layers).map(layer).collect::<Result<_, _>>()?,
            downsampler: match is_last {
                true => None,
                false => Some(downsampler(b, block.channels, config.downsample_padding)?),
            },
        })
    }

    /// Leaves every layer's output, and the smaller image, on `skips`.
    pub(super) fn forward(
        &self,
        run: &Run<'_>,
        mut x: Tensor,
        conditions: &Conditions<'_>,
        skips: &mut Vec<Tensor>,
    ) -> Result<Tensor, NnError> {
        for layer in &self.layers {
            x = layer.forward(run, x, conditions)?;
            skips.push(x.clone());
        }
        if let Some(downsampler) = &self.downsampler {
            x = downsampler.forward(run, &x)?;
            skips.push(x.clone());
        }
        Ok(x)
    }
}

/// Residual layers with an attention between each two.
///
/// Source: diffusers 0.42.1, models/unets/unet_2d_blocks.py, `UNetMidBlock2DCrossAttn`, and `UNetMidBlock2D` with
/// `num_layers` 0 and without attention.
#[derive(Debug)]
pub(super) struct MidBlock {
    first: Resnet,
    rest: Vec<(Transformer, Resnet)>,
}

impl MidBlock {
    pub(super) fn build(b: &Builder<'_>, block: &BlockConfig, config: &UnetConfig) -> Result<Self, BuildError> {
        let channels = block.channels;
        let spec = config.resnet(channels, channels, config.mid_block_scale_factor);
        let resnet = |idx: usize| Resnet::build(&b.sub("resnets").sub(idx), &spec);
        let first = resnet(0)?;
        let mut rest = Vec::new();
        if let Some(attention) = &block.attention {
            for (idx, depth) in attention.depths.iter().enumerate() {
                let at = b.sub("attentions").sub(idx);
                let transformer = Transformer::build(&at, &config.transformer(channels), attention, *depth)?;
                rest.push((transformer, resnet(idx + 1)?));
            }
        }
        Ok(Self { first, rest })
    }

    pub(super) fn forward(&self, run: &Run<'_>, x: Tensor, conditions: &Conditions<'_>) -> Result<Tensor, NnError> {
        let mut x = self.first.forward(run, x, Some(conditions.time))?;
        for (transformer, resnet) in &self.rest {
            x = transformer.forward(run, x, conditions.context)?;
            x = resnet.forward(run, x, Some(conditions.time))?;
        }
        Ok(x)
    }
}

/// Source: diffusers 0.42.1, models/unets/unet_2d_blocks.py, `UpBlock2D` and `CrossAttnUpBlock2D`.
#[derive(Debug)]
pub(super) struct UpBlock {
    layers: Vec<Layer>,
    upsampler: Option<Conv2d>,
}

impl UpBlock {
    /// The block at `b`, behind one of `in_channels`; with an upsampler unless it is the last. It takes as many of
    /// `skip_channels` from the end as it has layers.
    pub(super) fn build(
        b: &Builder<'_>,
        in_channels: usize,
        skip_channels: &mut Vec<usize>,
        block: &BlockConfig,
        config: &UnetConfig,
        is_last: bool,
    ) -> Result<Self, BuildError> {
        let layer = |idx| {
            let skip = skip_channels.pop().expect("up blocks have as many layers as there are skips");
            let in_channels = if idx == 0 { in_channels } else { block.channels };
            Layer::build(b, idx, in_channels + skip, block, config)
        };
        Ok(Self {
            layers: (0..block.layers).map(layer).collect::<Result<_, _>>()?,
            upsampler: if is_last { None } else { Some(upsampler(b, block.channels)?) },
        })
    }

    /// Takes one of `skips` from the end for each layer.
    ///
    /// The image grows to the size of the next skip: twice its own, or one less where a down block had rounded up.
    /// Source: diffusers 0.42.1, models/unets/unet_2d_condition.py, `forward`, `upsample_size`.
    pub(super) fn forward(
        &self,
        run: &Run<'_>,
        mut x: Tensor,
        conditions: &Conditions<'_>,
        skips: &mut Vec<Tensor>,
    ) -> Result<Tensor, NnError> {
        for layer in &self.layers {
            let skip = skips.pop().expect("up blocks have as many layers as there are skips");
            x = run.cx.concat(&[&x, &skip])?;
            drop(skip);
            x = layer.forward(run, x, conditions)?;
        }
        if let Some(upsampler) = &self.upsampler {
            let next = skips.last().expect("the next block has a layer");
            let size = [next.shape()[1], next.shape()[2]];
            x = upsampler.forward_resized(run, &x, size)?;
        }
        Ok(x)
    }
}

impl UnetConfig {
    fn resnet(&self, in_channels: usize, out_channels: usize, scale_factor: f32) -> ResnetSpec {
        ResnetSpec {
            in_channels,
            out_channels,
            time_width: Some(self.time.width),
            groups: self.norm_num_groups,
            epsilon: self.norm_eps,
            scale_factor,
        }
    }

    fn transformer(&self, channels: usize) -> TransformerSpec {
        let (groups, use_linear_projection) = (self.norm_num_groups, self.use_linear_projection);
        TransformerSpec { channels, groups, use_linear_projection }
    }
}

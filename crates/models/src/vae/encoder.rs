//! From images to latents.

use plimsoll_nn::{BuildError, Builder, Conv2d, GroupNorm, Linear, NnError, Run};
use plimsoll_tensor::Tensor;

use super::VaeConfig;
use super::mid::{EPSILON, MidBlock};
use crate::resnet::{Resnet, downsampler, same_size};

/// The convolution that halves the size sees one row and one column of zeros beyond the bottom and right edges.
/// Source: diffusers 0.42.1, models/downsampling.py, `Downsample2D.forward` with `padding` 0.
const DOWNSAMPLE_PADDING: [usize; 4] = [0, 1, 0, 1];

/// The encoding half of an autoencoder: a component of its own, so that text to image need not load it.
///
/// Source: diffusers 0.42.1, models/autoencoders/vae.py, `Encoder`, and autoencoder_kl.py, `_encode`.
#[derive(Debug)]
pub struct VaeEncoder {
    conv_in: Conv2d,
    down_blocks: Vec<DownBlock>,
    mid_block: MidBlock,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
    quant_conv: Option<Linear>,
}

#[derive(Debug)]
struct DownBlock {
    resnets: Vec<Resnet>,
    downsampler: Option<Conv2d>,
}

impl VaeEncoder {
    /// The encoder of the autoencoder at `b`. Attention parameters must have their current names; see
    /// [`vae_attention_name`](plimsoll_weights::vae_attention_name).
    ///
    /// # Errors
    /// [`BuildError`] if the checkpoint lacks a tensor or has it in another shape.
    pub fn build(b: &Builder<'_>, config: &VaeConfig) -> Result<Self, BuildError> {
        let at = b.sub("encoder");
        let channels = &config.block_out_channels;
        let (first, last) = (channels[0], channels[channels.len() - 1]);
        let moment_channels = 2 * config.latent_channels;
        let conv_in = at.conv2d("conv_in", same_size(config.in_channels, first, 3))?;
        let mut in_channels = first;
        let mut down_blocks = Vec::with_capacity(channels.len());
        for (idx, &out_channels) in channels.iter().enumerate() {
            let at = at.sub("down_blocks").sub(idx);
            let is_last = idx + 1 == channels.len();
            down_blocks.push(DownBlock::build(&at, in_channels, out_channels, config, is_last)?);
            in_channels = out_channels;
        }
        Ok(Self {
            conv_in,
            down_blocks,
            mid_block: MidBlock::build(&at.sub("mid_block"), last, config)?,
            conv_norm_out: at.group_norm("conv_norm_out", last, config.norm_num_groups, EPSILON)?,
            conv_out: at.conv2d("conv_out", same_size(last, moment_channels, 3))?,
            quant_conv: match config.use_quant_conv {
                true => Some(b.linear_as_conv("quant_conv", moment_channels, moment_channels, true)?),
                false => None,
            },
        })
    }

    /// Whether a checkpoint may have this tensor although the encoder takes no such: those of the decoder.
    pub fn ignores(name: &str) -> bool {
        name.starts_with("decoder.") || name.starts_with("post_quant_conv.")
    }

    /// The mean and the logarithm of the variance of the latents of images.
    ///
    /// # Shapes
    /// - `images`: `[batch, height, width, in_channels]`, in -1 to 1; rows and columns beyond a multiple of the factor
    ///   hardly count
    /// - returns `[batch, height / factor, width / factor, 2 * latent_channels]`: means, then logarithms of variances
    ///
    /// # Errors
    /// [`NnError`] if the shape doesn't fit, weights can't be had, or memory is short.
    pub fn forward(&self, run: &Run<'_>, images: &Tensor) -> Result<Tensor, NnError> {
        let mut x = self.conv_in.forward(run, images)?;
        for block in &self.down_blocks {
            x = block.forward(run, x)?;
        }
        x = self.mid_block.forward(run, x)?;
        x = self.conv_norm_out.forward_silu(run, &x)?;
        x = self.conv_out.forward(run, &x)?;
        match &self.quant_conv {
            None => Ok(x),
            Some(quant_conv) => quant_conv.forward(run, &x),
        }
    }
}

impl DownBlock {
    fn build(
        b: &Builder<'_>,
        in_channels: usize,
        out_channels: usize,
        config: &VaeConfig,
        is_last: bool,
    ) -> Result<Self, BuildError> {
        let resnet = |idx| {
            let in_channels = if idx == 0 { in_channels } else { out_channels };
            Resnet::build(&b.sub("resnets").sub(idx), &config.resnet(in_channels, out_channels))
        };
        Ok(Self {
            resnets: (0..config.layers_per_block).map(resnet).collect::<Result<_, _>>()?,
            downsampler: if is_last { None } else { Some(downsampler(b, out_channels, DOWNSAMPLE_PADDING)?) },
        })
    }

    fn forward(&self, run: &Run<'_>, mut x: Tensor) -> Result<Tensor, NnError> {
        for resnet in &self.resnets {
            x = resnet.forward(run, x, None)?;
        }
        match &self.downsampler {
            None => Ok(x),
            Some(downsampler) => downsampler.forward(run, &x),
        }
    }
}

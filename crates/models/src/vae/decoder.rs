//! From latents to images.

use plimsoll_nn::{BuildError, Builder, Conv2d, GroupNorm, Linear, NnError, Run};
use plimsoll_tensor::Tensor;

use super::VaeConfig;
use super::mid::{EPSILON, MidBlock};
use crate::resnet::{Resnet, same_size, upsampler};

/// The decoding half of an autoencoder: a component of its own.
///
/// Source: diffusers 0.42.1, models/autoencoders/vae.py, `Decoder`, and autoencoder_kl.py, `_decode`.
#[derive(Debug)]
pub struct VaeDecoder {
    post_quant_conv: Option<Linear>,
    conv_in: Conv2d,
    mid_block: MidBlock,
    up_blocks: Vec<UpBlock>,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
}

#[derive(Debug)]
struct UpBlock {
    resnets: Vec<Resnet>,
    upsampler: Option<Conv2d>,
}

impl VaeDecoder {
    /// The decoder of the autoencoder at `b`. Attention parameters must have their current names; see
    /// [`vae_attention_name`](plimsoll_weights::vae_attention_name).
    ///
    /// # Errors
    /// [`BuildError`] if the checkpoint lacks a tensor or has it in another shape.
    pub fn build(b: &Builder<'_>, config: &VaeConfig) -> Result<Self, BuildError> {
        let at = b.sub("decoder");
        let channels = &config.block_out_channels;
        let (first, last) = (channels[0], channels[channels.len() - 1]);
        let latent_channels = config.latent_channels;
        let post_quant_conv = match config.use_post_quant_conv {
            true => Some(b.linear_as_conv("post_quant_conv", latent_channels, latent_channels, true)?),
            false => None,
        };
        let conv_in = at.conv2d("conv_in", same_size(latent_channels, last, 3))?;
        let mid_block = MidBlock::build(&at.sub("mid_block"), last, config)?;
        let mut in_channels = last;
        let mut up_blocks = Vec::with_capacity(channels.len());
        for (idx, &out_channels) in channels.iter().rev().enumerate() {
            let at = at.sub("up_blocks").sub(idx);
            let is_last = idx + 1 == channels.len();
            up_blocks.push(UpBlock::build(&at, in_channels, out_channels, config, is_last)?);
            in_channels = out_channels;
        }
        Ok(Self {
            post_quant_conv,
            conv_in,
            mid_block,
            up_blocks,
            conv_norm_out: at.group_norm("conv_norm_out", first, config.norm_num_groups, EPSILON)?,
            conv_out: at.conv2d("conv_out", same_size(first, config.out_channels, 3))?,
        })
    }

    /// Whether a checkpoint may have this tensor although the decoder takes no such: those of the encoder.
    pub fn ignores(name: &str) -> bool {
        name.starts_with("encoder.") || name.starts_with("quant_conv.")
    }

    /// Images from latents in the autoencoder's own scale; see [`LatentScale`](super::LatentScale).
    ///
    /// # Shapes
    /// - `latents`: `[batch, height, width, latent_channels]`
    /// - returns `[batch, height * factor, width * factor, out_channels]`, about -1 to 1 and not clamped
    ///
    /// # Errors
    /// [`NnError`] if the shape doesn't fit, weights can't be had, or memory is short.
    pub fn forward(&self, run: &Run<'_>, latents: &Tensor) -> Result<Tensor, NnError> {
        let mut x = match &self.post_quant_conv {
            None => self.conv_in.forward(run, latents)?,
            Some(post_quant_conv) => self.conv_in.forward(run, &post_quant_conv.forward(run, latents)?)?,
        };
        x = self.mid_block.forward(run, x)?;
        for block in &self.up_blocks {
            x = block.forward(run, x)?;
        }
        x = self.conv_norm_out.forward_silu(run, &x)?;
        self.conv_out.forward(run, &x)
    }
}

impl UpBlock {
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
            resnets: (0..=config.layers_per_block).map(resnet).collect::<Result<_, _>>()?,
            upsampler: if is_last { None } else { Some(upsampler(b, out_channels)?) },
        })
    }

    fn forward(&self, run: &Run<'_>, mut x: Tensor) -> Result<Tensor, NnError> {
        for resnet in &self.resnets {
            x = resnet.forward(run, x, None)?;
        }
        match &self.upsampler {
            None => Ok(x),
            Some(upsampler) => {
                let size = [2 * x.shape()[1], 2 * x.shape()[2]];
                upsampler.forward_resized(run, &x, size)
            }
        }
    }
}

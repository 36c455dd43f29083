//! The innermost block of an autoencoder.

use plimsoll_nn::{BuildError, Builder, GroupNorm, Linear, NnError, Run};
use plimsoll_tensor::Tensor;

use super::VaeConfig;
use crate::resnet::{Resnet, ResnetSpec};

/// Added to the variance by all norms. Source: diffusers 0.42.1, models/autoencoders/vae.py, `resnet_eps=1e-6`.
pub(super) const EPSILON: f32 = 1e-6;

/// Two residual layers with an attention between them.
///
/// Source: diffusers 0.42.1, models/unets/unet_2d_blocks.py, `UNetMidBlock2D` with one layer.
#[derive(Debug)]
pub(super) struct MidBlock {
    first: Resnet,
    attention: Option<Attention>,
    second: Resnet,
}

impl MidBlock {
    pub(super) fn build(b: &Builder<'_>, channels: usize, config: &VaeConfig) -> Result<Self, BuildError> {
        let spec = config.resnet(channels, channels);
        Ok(Self {
            first: Resnet::build(&b.sub("resnets.0"), &spec)?,
            attention: match config.mid_block_add_attention {
                true => Some(Attention::build(&b.sub("attentions.0"), channels, config.norm_num_groups)?),
                false => None,
            },
            second: Resnet::build(&b.sub("resnets.1"), &spec)?,
        })
    }

    pub(super) fn forward(&self, run: &Run<'_>, x: Tensor) -> Result<Tensor, NnError> {
        let mut x = self.first.forward(run, x, None)?;
        if let Some(attention) = &self.attention {
            x = attention.forward(run, x)?;
        }
        self.second.forward(run, x, None)
    }
}

/// Attention of all pixels to each other, with one head, added to the image.
///
/// Source: diffusers 0.42.1, models/attention_processor.py, `Attention` with `residual_connection`, and biases.
#[derive(Debug)]
struct Attention {
    group_norm: GroupNorm,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Linear,
}

impl Attention {
    fn build(b: &Builder<'_>, channels: usize, groups: usize) -> Result<Self, BuildError> {
        let linear = |name| b.linear(name, channels, channels, true);
        Ok(Self {
            group_norm: b.group_norm("group_norm", channels, groups, EPSILON)?,
            to_q: linear("to_q")?,
            to_k: linear("to_k")?,
            to_v: linear("to_v")?,
            to_out: linear("to_out.0")?,
        })
    }

    fn forward(&self, run: &Run<'_>, x: Tensor) -> Result<Tensor, NnError> {
        let image_shape = x.shape().to_vec();
        let token_shape = [image_shape[0], x.row_count() / image_shape[0], x.columns()];
        let mut h = self.group_norm.forward(run, &x)?.reshape(&token_shape)?;
        let q = self.to_q.forward(run, &h)?;
        let k = self.to_k.forward(run, &h)?;
        let v = self.to_v.forward(run, &h)?;
        drop(h);
        h = run.cx.attention(&q, &k, &v, 1, false)?;
        drop((q, k, v));
        h = self.to_out.forward(run, &h)?.reshape(&image_shape)?;
        Ok(run.cx.add(h, &x)?)
    }
}

impl VaeConfig {
    pub(super) fn resnet(&self, in_channels: usize, out_channels: usize) -> ResnetSpec {
        ResnetSpec {
            in_channels,
            out_channels,
            time_width: None,
            groups: self.norm_num_groups,
            epsilon: EPSILON,
            scale_factor: 1.0,
        }
    }
}

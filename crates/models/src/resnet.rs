//! The residual layer of UNets and autoencoders, and the convolutions between their sizes.

use plimsoll_nn::{BuildError, Builder, Conv2d, GroupNorm, Linear, NnError, Run};
use plimsoll_tensor::{Activation, Conv2dSpec, Tensor};

/// What a residual layer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResnetSpec {
    pub(crate) in_channels: usize,
    pub(crate) out_channels: usize,
    /// Features of the time embedding; none for a layer without.
    pub(crate) time_width: Option<usize>,
    pub(crate) groups: usize,
    pub(crate) epsilon: f32,
    /// Divides the result.
    pub(crate) scale_factor: f32,
}

/// `(x + conv(silu(norm(conv(silu(norm(x))) + time)))) / scale factor`.
///
/// Source: diffusers 0.42.1, models/resnet.py, `ResnetBlock2D` with `time_embedding_norm` "default" (#L188-L377).
#[derive(Debug)]
pub(crate) struct Resnet {
    norm1: GroupNorm,
    conv1: Conv2d,
    time_emb_proj: Option<Linear>,
    norm2: GroupNorm,
    conv2: Conv2d,
    conv_shortcut: Option<Linear>,
    scale_factor: f32,
}

impl Resnet {
    pub(crate) fn build(b: &Builder<'_>, spec: &ResnetSpec) -> Result<Self, BuildError> {
        let &ResnetSpec { in_channels, out_channels, groups, epsilon, .. } = spec;
        Ok(Self {
            norm1: b.group_norm("norm1", in_channels, groups, epsilon)?,
            conv1: b.conv2d("conv1", same_size(in_channels, out_channels, 3))?,
            time_emb_proj: match spec.time_width {
                Some(width) => Some(b.linear("time_emb_proj", width, out_channels, true)?),
                None => None,
            },
            norm2: b.group_norm("norm2", out_channels, groups, epsilon)?,
            conv2: b.conv2d("conv2", same_size(out_channels, out_channels, 3))?,
            conv_shortcut: match in_channels == out_channels {
                true => None,
                false => Some(b.linear_as_conv("conv_shortcut", in_channels, out_channels, true)?),
            },
            scale_factor: spec.scale_factor,
        })
    }

    /// # Shapes
    /// - `x`: `[batch, height, width, in_channels]`
    /// - `time`: `silu` of the time embedding, `[batch, time width]`
    /// - returns `[batch, height, width, out_channels]`
    pub(crate) fn forward(&self, run: &Run<'_>, x: Tensor, time: Option<&Tensor>) -> Result<Tensor, NnError> {
        let mut h = self.norm1.forward_silu(run, &x)?;
        h = self.conv1.forward(run, &h)?;
        if let Some((projection, time)) = self.time_emb_proj.as_ref().zip(time) {
            h = run.cx.add_per_batch(h, &projection.forward(run, time)?)?;
        }
        h = self.norm2.forward_silu(run, &h)?;
        h = self.conv2.forward(run, &h)?;
        let residual = match &self.conv_shortcut {
            Some(shortcut) => shortcut.forward(run, &x)?,
            None => x,
        };
        h = run.cx.add(h, &residual)?;
        if self.scale_factor != 1.0 {
            h = run.cx.activate(h, Activation::Affine { scale: 1.0 / self.scale_factor, shift: 0.0 })?;
        }
        Ok(h)
    }
}

/// A convolution that keeps the size of the image; `kernel` is odd.
pub(crate) fn same_size(in_channels: usize, out_channels: usize, kernel: usize) -> Conv2dSpec {
    Conv2dSpec { in_channels, out_channels, kernel: [kernel; 2], stride: 1, padding: [kernel / 2; 4] }
}

/// The convolution that halves the size of the image.
///
/// Source: diffusers 0.42.1, models/downsampling.py, `Downsample2D`.
pub(crate) fn downsampler(b: &Builder<'_>, channels: usize, padding: [usize; 4]) -> Result<Conv2d, BuildError> {
    let spec = Conv2dSpec { in_channels: channels, out_channels: channels, kernel: [3; 2], stride: 2, padding };
    b.sub("downsamplers.0").conv2d("conv", spec)
}

/// The convolution behind a nearest resize, to be run with [`Conv2d::forward_resized`].
///
/// Source: diffusers 0.42.1, models/upsampling.py, `Upsample2D`.
pub(crate) fn upsampler(b: &Builder<'_>, channels: usize) -> Result<Conv2d, BuildError> {
    b.sub("upsamplers.0").conv2d("conv", same_size(channels, channels, 3))
}

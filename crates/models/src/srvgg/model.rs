//! The upscaler.

use plimsoll_nn::{BuildError, Builder, Conv2d, NnError, PRelu, Run};
use plimsoll_tensor::Tensor;

use super::SrvggConfig;
use crate::resnet::same_size;

/// Enlarges images: what it computes is added to the nearest-neighbor enlargement.
///
/// Source: Real-ESRGAN, realesrgan/archs/srvgg_arch.py, `SRVGGNetCompact` with `act_type` "prelu" (Wang et al. 2021).
#[derive(Debug)]
pub struct Srvgg {
    hidden: Vec<(Conv2d, PRelu)>,
    last: Conv2d,
    upscale: usize,
}

impl Srvgg {
    /// The upscaler whose tensors lie at `b`.
    ///
    /// # Errors
    /// [`BuildError`] if the checkpoint lacks a tensor or has it in another shape.
    pub fn build(b: &Builder<'_>, config: &SrvggConfig) -> Result<Self, BuildError> {
        let body = b.sub("body");
        let channels = config.channels;
        let mut hidden = Vec::with_capacity(config.conv_count + 1);
        for idx in 0..=config.conv_count {
            let in_channels = if idx == 0 { config.image_channels } else { channels };
            let conv = body.conv2d(&(2 * idx).to_string(), same_size(in_channels, channels, 3))?;
            hidden.push((conv, body.prelu(&(2 * idx + 1).to_string(), channels)?));
        }
        let stacked = config.image_channels * config.upscale * config.upscale;
        let last = body.conv2d(&(2 * hidden.len()).to_string(), same_size(channels, stacked, 3))?;
        Ok(Self { hidden, last, upscale: config.upscale })
    }

    /// Whether a checkpoint may have this tensor although the model takes no such: none.
    pub fn ignores(_name: &str) -> bool {
        false
    }

    /// # Shapes
    /// - `images`: `[batch, height, width, channels]`, 0 to 1
    /// - returns `[batch, height * upscale, width * upscale, channels]`, about 0 to 1 and not clamped
    ///
    /// # Errors
    /// [`NnError`] if the shape doesn't fit, weights can't be had, or memory is short.
    pub fn forward(&self, run: &Run<'_>, images: &Tensor) -> Result<Tensor, NnError> {
        let mut x = images.clone();
        for (conv, prelu) in &self.hidden {
            x = prelu.forward(run, conv.forward(run, &x)?)?;
        }
        x = self.last.forward(run, &x)?;
        x = run.cx.pixel_shuffle(&x, self.upscale)?;
        let size = [x.shape()[1], x.shape()[2]];
        Ok(run.cx.add(x, &run.cx.resize_nearest(images, size)?)?)
    }
}

//! What an SRVGGNetCompact is, read off its tensors: its files have no config.

use plimsoll_weights::TensorIndex;

const LAYERS_MAX: usize = 512;
const CHANNELS_MAX: usize = 1 << 12;
const UPSCALE_MAX: usize = 8;

/// What an upscaler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrvggConfig {
    /// Channels of the images, in and out.
    pub image_channels: usize,
    /// Channels inside (`num_feat`).
    pub channels: usize,
    /// Convolutions between the first and the last (`num_conv`).
    pub conv_count: usize,
    /// How much larger the image gets, along each side.
    pub upscale: usize,
}

/// The tensors are not those of an SRVGGNetCompact with PReLU. Use a file of that architecture, such as Real-ESRGAN's
/// animevideov3 or general-x4v3.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{origin}` is no SRVGGNetCompact upscaler: {reason}")]
pub struct SrvggConfigError {
    origin: String,
    reason: String,
}

impl SrvggConfig {
    /// Reads the sizes off names and shapes: `body.0` is the first convolution, `body.1` its PReLU, and so on in turn;
    /// the last convolution gives `upscale^2` values for each channel of the image.
    ///
    /// # Errors
    /// [`SrvggConfigError`] if the first and last layers are not there, or their sizes make no upscaler. The others are
    /// checked when the model is built.
    pub fn detect(index: &TensorIndex) -> Result<Self, SrvggConfigError> {
        let error = |reason: String| SrvggConfigError { origin: index.origin().to_owned(), reason };
        let shape = |layer: usize| index.get(&format!("body.{layer}.weight")).map(|tensor| tensor.shape.as_slice());
        let Some(&[channels, image_channels, 3, 3]) = shape(0) else {
            return Err(error("it has no 3x3 convolution `body.0.weight`".to_owned()));
        };
        let layers = (0..=LAYERS_MAX).take_while(|&layer| shape(layer).is_some()).count();
        if !(3..=LAYERS_MAX).contains(&layers) || layers % 2 == 0 {
            let reason = format!("`body` has {layers} layers, but it must have an odd number from 3 to {LAYERS_MAX}");
            return Err(error(reason));
        }
        let last = layers - 1;
        let Some(&[stacked, _, 3, 3]) = shape(last) else {
            return Err(error(format!("its last layer `body.{last}.weight` is no 3x3 convolution")));
        };
        if !(1..=CHANNELS_MAX).contains(&channels) || !(1..=4).contains(&image_channels) {
            let sizes = format!("{image_channels} image channels and {channels} inside");
            return Err(error(format!("it has {sizes}, but there must be up to 4 and up to {CHANNELS_MAX}")));
        }
        let Some(upscale) = (1..=UPSCALE_MAX).find(|factor| image_channels * factor * factor == stacked) else {
            let needed = format!("{image_channels} times a square up to {UPSCALE_MAX}^2");
            return Err(error(format!("its last layer gives {stacked} channels, not {needed}")));
        };
        Ok(Self { image_channels, channels, conv_count: (layers - 3) / 2, upscale })
    }
}

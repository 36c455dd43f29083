//! The built-in shapes: what well-known denoisers are like, without their weights.

use plimsoll_pipeline::SIDE_MAX;

use super::workload::{Demand, Workload};
use super::{transformer_shape, unet_shape};
use crate::failure::Failure;

/// A denoiser that can be planned without its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Stable Diffusion 1.5.
    Sd15,
    /// Stable Diffusion XL.
    Sdxl,
    /// Flux.1.
    Flux,
    /// Wan 2.1, 14B.
    Wan14b,
}

impl Shape {
    /// Every shape.
    pub(crate) const ALL: [Self; 4] = [Self::Sd15, Self::Sdxl, Self::Flux, Self::Wan14b];

    /// What it is called behind `shape:`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sd15 => "sd15",
            Self::Sdxl => "sdxl",
            Self::Flux => "flux",
            Self::Wan14b => "wan14b",
        }
    }

    /// A pass through it.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a size that can't be.
    pub(super) fn workload(self, demand: &Demand<'_>) -> Result<Workload, Failure> {
        let [width, height] = self.size(demand)?;
        match self {
            Self::Sd15 => unet_shape::workload(self, &unet_shape::SD15, [width, height], demand),
            Self::Sdxl => unet_shape::workload(self, &unet_shape::SDXL, [width, height], demand),
            Self::Flux => Ok(transformer_shape::flux(self, [width, height], demand)),
            Self::Wan14b => Ok(transformer_shape::wan14b(self, [width, height], demand)),
        }
    }

    /// `[width, height]` in pixels: what is asked for, or what the shape's figures are usually given for.
    fn size(self, demand: &Demand<'_>) -> Result<[usize; 2], Failure> {
        let (default, multiple) = match self {
            Self::Sd15 => (512, 8),
            Self::Sdxl => (1024, 8),
            Self::Flux => (1024, 16),
            Self::Wan14b => (320, 16),
        };
        let size = [("width", demand.width), ("height", demand.height)];
        let mut pixels = [default; 2];
        for ((name, asked), pixels) in size.into_iter().zip(&mut pixels) {
            *pixels = asked.unwrap_or(default);
            if !pixels.is_multiple_of(multiple) {
                return Err(Failure::usage(format!(
                    "the {name} {pixels} is not possible; it must be a multiple of {multiple} from {multiple} to {SIDE_MAX}"
                )));
            }
        }
        Ok(pixels)
    }
}

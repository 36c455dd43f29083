//! The denoiser of Stable Diffusion 1, 2 and XL (Rombach et al. 2022), as diffusers' `UNet2DConditionModel`.

mod blocks;
mod config;
mod model;
mod timestep;
mod transformer;

pub use config::{AddedConfig, AttentionConfig, BlockConfig, TimeConfig, UnetConfig};
pub use model::{AddedInput, Stage, Unet, UnetError, UnetInput};
pub use timestep::sinusoids;

//! The denoiser of Stable Diffusion 1, 2 and XL (Rombach et al. 2022), as diffusers' `UNet2DConditionModel`.

mod block_config;
mod blocks;
mod config;
mod model;
mod timestep;
mod transformer;

pub use block_config::{AttentionConfig, BlockConfig};
pub use config::{AddedConfig, TimeConfig, UnetConfig};
pub use model::{AddedInput, Stage, Unet, UnetError, UnetInput};
pub use timestep::sinusoids;

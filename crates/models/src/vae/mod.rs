//! The autoencoder between images and latents (Rombach et al. 2022), as diffusers' `AutoencoderKL`.
//!
//! Encoder and decoder are two models over one checkpoint, each a component of its own.

mod config;
mod decoder;
mod encoder;
mod latent;
mod mid;

pub use config::VaeConfig;
pub use decoder::VaeDecoder;
pub use encoder::VaeEncoder;
pub use latent::LatentScale;

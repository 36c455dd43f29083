//! Model families, as configured by their checkpoints: clip, unet, vae, srvgg.
//!
//! A model is built from its config and a builder over the checkpoint, in the order in which its forward pass visits
//! the layers, and reads like the paper. It never sees a budget, a tier or a file format: each layer leases its weights
//! for the time of its call. Images are channels-last, `[batch, height, width, channels]`, tokens
//! `[batch, tokens, channels]`.
//!
//! What always holds: a config value that would make a model compute something else than the library that wrote it
//! is an error which names it.

#![forbid(unsafe_code)]

mod fields;
mod resnet;

pub mod clip;
pub mod srvgg;
pub mod unet;
pub mod vae;

pub use fields::ConfigError;

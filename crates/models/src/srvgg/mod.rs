//! The compact upscaler of Real-ESRGAN (Wang et al. 2021), SRVGGNetCompact.

mod config;
mod model;

pub use config::{SrvggConfig, SrvggConfigError};
pub use model::Srvgg;

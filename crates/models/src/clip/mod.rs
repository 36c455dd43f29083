//! CLIP's text encoder (Radford et al. 2021), as transformers' `CLIPTextModel` and `CLIPTextModelWithProjection`.

mod config;
mod model;

pub use config::{ClipConfig, Pooling};
pub use model::{ClipError, ClipTextEncoder, TextEncoding, TextRequest};

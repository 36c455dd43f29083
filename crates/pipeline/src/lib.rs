//! Pipelines: text to image, image to image, upscale.
//!
//! [`Pipeline::open`] reads a model's configurations and headers; [`Pipeline::generate`] draws. A run has phases, each
//! with one component: encode text, encode image, denoise, decode, upscale. Every phase is planned before the first is
//! loaded, around the exact memory of its activations, which a rehearsal gives; a component is loaded for its phase and
//! unloaded after it.
//!
//! What always holds: no state crosses runs, and what is drawn depends on the request and the model alone, not on the
//! budget, the offload streams or the threads.

#![forbid(unsafe_code)]

mod denoise;
mod error;
mod generate;
mod image;
mod model_index;
mod phase_component;
mod pipeline;
mod preview;
mod progress;
mod source;
mod start_image;
mod text;
mod tokenizer;
mod upscale;

pub use error::PipelineError;
pub use generate::{COUNT_MAX, Generated, Request, SIDE_MAX, StartImage};
pub use image::Image;
pub use pipeline::{Defaults, Pipeline, PipelineOptions};
pub use preview::Preview;
pub use progress::{Phase, Progress, Silent};
pub use source::{ModelSource, SourceError};
pub use tokenizer::{EncodeError, TextLimits, Tokenizer, TokenizerError};
pub use upscale::Upscaler;

//! Layers that take their weights through a lease.
//!
//! A [`Builder`] turns the tensors of a checkpoint into layers and, on the way, into the residency engine's units: one
//! layer's weight and bias move together, in the order in which the layers are built. Build layers in the order in
//! which the forward pass visits them; the engine fetches ahead in that order.
//!
//! Storage type and tier are the weight's business, never the layer's: a layer knows its unit and where in it each
//! tensor lies.

#![forbid(unsafe_code)]

mod blank;
mod builder;
mod layers;
mod run;

pub use blank::BlankBytes;
pub use builder::{BuildError, Builder};
pub use layers::{Conv2d, Embedding, GroupNorm, LayerNorm, Linear, PRelu};
pub use run::{NnError, Run};

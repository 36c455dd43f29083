//! The op set: shape rules and dispatch, a file a topic.

mod elementwise;
mod image;
mod matrix;
mod norm;

pub use matrix::Conv2dSpec;

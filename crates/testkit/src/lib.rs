//! Fixtures, goldens and tolerances for tests. Used by tests only, so everything here panics instead of returning
//! errors, with a message that says which file or number is at fault.

#![forbid(unsafe_code)]

mod close;
mod crafted_file;
mod golden;
mod layout;
mod op_golden;
mod paths;

pub use close::assert_close;
pub use crafted_file::CraftedFile;
pub use golden::{Golden, GoldenTensor, golden_json, read_f32, read_i32};
pub use layout::{nchw_to_nhwc, nhwc_to_nchw};
pub use op_golden::{OpCase, OpGoldens};
pub use paths::{asset, fixture, repository};

//! Sigma schedules, samplers, guidance, and noise equal to torch's CPU generator.
//!
//! A run is put together from values: a [`NoiseConfig`] (what the model was trained with), a [`SigmaSchedule`] that
//! turns it into [`SigmaSteps`], a [`Sampler`], and noise from a seed ([`SeededNoise`]). [`sample`] runs it on anything
//! that can add latents ([`LatentMath`]; the device's `Compute` does) against anything that predicts the clean picture
//! ([`Denoiser`]).
//!
//! What always holds: a run's numbers depend on nothing but these values. No state crosses runs; a schedule is computed
//! anew for each.
//!
//! Deliberately knows no network: what to feed it is said by [`NoiseLevel`], [`model_input_scale`] and [`Prediction`].

#![forbid(unsafe_code)]

mod guidance;
mod noise;
mod noise_config;
mod noise_table;
mod prediction;
mod sampler;
mod sampler_noise;
mod schedule;
mod tensor_math;

pub use guidance::{Guidance, GuidanceError};
pub use noise::TorchGenerator;
pub use noise_config::{Betas, NoiseConfig, NoiseConfigError, SigmaSpacing, TimestepSpacing};
pub use noise_table::{
    COMFY_TERMINAL_ALPHA_BAR, DIFFUSERS_TERMINAL_ALPHA_BAR, NEAR_ZERO_TERMINAL_ALPHA_BAR, NoiseTable, NoiseTableError,
};
pub use prediction::{DenoisedTerms, Prediction, model_input_scale};
pub use sampler::{Denoiser, LatentMath, SampleError, Sampler, SamplerParts, StepReport, UnknownSampler, sample};
pub use sampler_noise::{NoiseRule, NoiseSource, SeededNoise};
pub use schedule::{NoiseLevel, STEP_COUNT_MAX, ScheduleError, SigmaSchedule, SigmaStep, SigmaSteps, UnknownSchedule};

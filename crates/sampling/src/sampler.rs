//! Samplers: from noise to a picture, along the sigmas of a schedule.
//!
//! Names and results are ComfyUI's, and with schedule `model` those of the diffusers class with the same formulas. A
//! sampler works in the variance-exploding form `x = x0 + sigma * noise` and asks its [`Denoiser`] for `x0`; all it
//! does with tensors are linear combinations ([`LatentMath`]), with coefficients computed in f64.
//!
//! [`sample`] drives: it walks the steps, reports each one, and can be cancelled between any two. Each sampler's file
//! holds its formula and its source.
//!
//! Where results differ from diffusers (ComfyUI is followed):
//! - `lcm` takes the denoised picture as it is. diffusers mixes in `c_skip < 7e-6` of the noisy sample (boundary
//!   scaling; at most 3.5e-5 of it for the usual 50 distilled steps).
//! - `dpmpp_2m` with a last sigma above 0 (`final_sigmas_type` `sigma_min`) takes that step in second order; diffusers
//!   does so from 15 steps on only.

mod ddim;
mod dpmpp_2m;
mod dpmpp_2m_sde;
mod euler;
mod euler_ancestral;
mod heun;
mod lcm;
#[cfg(test)]
pub(crate) mod testing;

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use crate::sampler_noise::NoiseSource;
use crate::schedule::{NoiseLevel, SigmaStep, SigmaSteps};

/// A sampler, by ComfyUI's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampler {
    /// First order.
    Euler,
    /// First order, with fresh noise in each step.
    EulerAncestral,
    /// Deterministic DDIM (eta 0): `euler` in another parametrization.
    Ddim,
    /// Second order from the previous step.
    Dpmpp2m,
    /// Second order from the previous step, with fresh noise in each step (eta 1, midpoint).
    Dpmpp2mSde,
    /// Second order from a second evaluation of the network in each step.
    Heun,
    /// For consistency-distilled models: denoise fully, noise again.
    Lcm,
}

impl Sampler {
    /// Every sampler.
    pub const ALL: [Self; 7] =
        [Self::Euler, Self::EulerAncestral, Self::Ddim, Self::Dpmpp2m, Self::Dpmpp2mSde, Self::Heun, Self::Lcm];

    /// The name it goes by in options, files and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Euler => "euler",
            Self::EulerAncestral => "euler_ancestral",
            Self::Ddim => "ddim",
            Self::Dpmpp2m => "dpmpp_2m",
            Self::Dpmpp2mSde => "dpmpp_2m_sde",
            Self::Heun => "heun",
            Self::Lcm => "lcm",
        }
    }

    /// The sampler with the formulas of a diffusers scheduler class (`_class_name` of a `scheduler_config.json`), if
    /// there is one. `DPMSolverMultistepScheduler` is `dpmpp_2m_sde` instead with `algorithm_type` `sde-dpmsolver++`.
    pub fn of_diffusers_class(class_name: &str) -> Option<Self> {
        match class_name {
            "EulerDiscreteScheduler" => Some(Self::Euler),
            "EulerAncestralDiscreteScheduler" => Some(Self::EulerAncestral),
            "DDIMScheduler" => Some(Self::Ddim),
            "DPMSolverMultistepScheduler" => Some(Self::Dpmpp2m),
            "HeunDiscreteScheduler" => Some(Self::Heun),
            "LCMScheduler" => Some(Self::Lcm),
            _ => None,
        }
    }

    fn formula<M: LatentMath>(self) -> Box<dyn Formula<M>> {
        match self {
            Self::Euler => Box::new(euler::Euler),
            Self::EulerAncestral => Box::new(euler_ancestral::EulerAncestral),
            Self::Ddim => Box::new(ddim::Ddim),
            Self::Dpmpp2m => Box::new(dpmpp_2m::Dpmpp2m::default()),
            Self::Dpmpp2mSde => Box::new(dpmpp_2m_sde::Dpmpp2mSde::default()),
            Self::Heun => Box::new(heun::Heun),
            Self::Lcm => Box::new(lcm::Lcm),
        }
    }
}

impl fmt::Display for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Sampler {
    type Err = UnknownSampler;

    fn from_str(name: &str) -> Result<Self, UnknownSampler> {
        Self::ALL
            .into_iter()
            .find(|sampler| sampler.name() == name)
            .ok_or_else(|| UnknownSampler { name: name.to_owned() })
    }
}

/// No sampler has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown sampler `{name}`; known: {}", Self::known())]
pub struct UnknownSampler {
    /// The name that was given.
    pub name: String,
}

impl UnknownSampler {
    fn known() -> String {
        Sampler::ALL.map(|sampler| format!("`{sampler}`")).join(", ")
    }
}

/// The arithmetic on latents that samplers need.
pub trait LatentMath {
    /// A latent: f32, any shape. Clones may share memory.
    type Latent: Clone + 'static;
    /// Why it failed.
    type Error;

    /// The sum of `factor * latent` over the terms, which are at least one and all of one shape.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn combine(&self, terms: &[(f64, &Self::Latent)]) -> Result<Self::Latent, Self::Error>;

    /// A latent of the shape of `like` from numbers in its layout.
    ///
    /// # Errors
    /// If the count differs, or whatever the device reports.
    fn upload_like(&self, numbers: &[f32], like: &Self::Latent) -> Result<Self::Latent, Self::Error>;
}

/// What predicts the clean picture: network, prediction type and guidance together.
pub trait Denoiser<M: LatentMath> {
    /// The clean picture `x0` in `x = x0 + sigma * noise`.
    ///
    /// # Errors
    /// Whatever the network reports.
    fn denoise(&mut self, x: &M::Latent, level: NoiseLevel) -> Result<M::Latent, M::Error>;
}

impl<M: LatentMath, F> Denoiser<M> for F
where
    F: FnMut(&M::Latent, NoiseLevel) -> Result<M::Latent, M::Error>,
{
    fn denoise(&mut self, x: &M::Latent, level: NoiseLevel) -> Result<M::Latent, M::Error> {
        self(x, level)
    }
}

/// A step that was just done.
pub struct StepReport<'run, L> {
    /// Its index, from 0.
    pub step_idx: usize,
    /// How many there are.
    pub step_count: usize,
    /// The noise level it led to.
    pub sigma: f64,
    /// The clean picture as predicted in this step, for a preview.
    pub denoised: &'run L,
}

/// A run that did not finish.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleError<E> {
    /// The observer broke off after this step.
    #[error("sampling was cancelled after step {} of {step_count}", step_idx + 1)]
    Cancelled {
        /// The last step that was done.
        step_idx: usize,
        /// How many there were to be.
        step_count: usize,
    },
    /// The network or the device failed.
    #[error(transparent)]
    Failed(#[from] E),
}

/// What a run works with.
pub struct SamplerParts<'run, M: LatentMath> {
    /// Does the arithmetic.
    pub math: &'run M,
    /// Predicts the clean picture.
    pub denoiser: &'run mut dyn Denoiser<M>,
    /// Where fresh noise comes from, for the samplers that add some.
    pub noise: &'run mut dyn NoiseSource,
    /// Hears of every step that was done, and breaks to cancel.
    pub observer: &'run mut dyn FnMut(&StepReport<'_, M::Latent>) -> ControlFlow<()>,
}

/// Runs a sampler from `x`, which is noised as `steps` says, to a clean latent.
///
/// # Errors
/// [`SampleError::Cancelled`] if the observer broke off; [`SampleError::Failed`] if the network or the device failed.
///
/// # Panics
/// If there are no steps; schedules have at least one.
pub fn sample<M: LatentMath>(
    sampler: Sampler,
    steps: &SigmaSteps,
    mut x: M::Latent,
    parts: SamplerParts<'_, M>,
) -> Result<M::Latent, SampleError<M::Error>> {
    assert!(!steps.steps.is_empty(), "a schedule has at least one step");
    let SamplerParts { math, denoiser, noise, observer } = parts;
    let step_count = steps.steps.len();
    let mut formula = sampler.formula::<M>();
    let mut tools = Tools { math, denoiser, noise };
    for (step_idx, step) in steps.steps.iter().enumerate() {
        if let Some(previous) = step_idx.checked_sub(1).map(|idx| steps.steps[idx]) {
            x = bridge(math, x, previous.to.sigma, step.from.sigma)?;
        }
        let stepped = formula.step(&mut tools, x, step)?;
        x = stepped.x;
        let report = StepReport { step_idx, step_count, sigma: step.to.sigma, denoised: &stepped.denoised };
        if observer(&report).is_break() {
            return Err(SampleError::Cancelled { step_idx, step_count });
        }
    }
    if steps.final_scale == 1.0 { Ok(x) } else { Ok(math.combine(&[(steps.final_scale, &x)])?) }
}

/// Carries the variance-preserving form of `x` over from one noise level to another (see [`SigmaStep`]).
fn bridge<M: LatentMath>(math: &M, x: M::Latent, from: f64, to: f64) -> Result<M::Latent, M::Error> {
    if from == to { Ok(x) } else { math.combine(&[(to.hypot(1.0) / from.hypot(1.0), &x)]) }
}

/// What a formula may use.
struct Tools<'run, M: LatentMath> {
    math: &'run M,
    denoiser: &'run mut dyn Denoiser<M>,
    noise: &'run mut dyn NoiseSource,
}

impl<M: LatentMath> Tools<'_, M> {
    fn denoise(&mut self, x: &M::Latent, level: NoiseLevel) -> Result<M::Latent, M::Error> {
        self.denoiser.denoise(x, level)
    }

    fn combine(&self, terms: &[(f64, &M::Latent)]) -> Result<M::Latent, M::Error> {
        self.math.combine(terms)
    }

    /// Fresh noise for a step, of the shape of `like`.
    fn noise(&mut self, step: &SigmaStep, like: &M::Latent) -> Result<M::Latent, M::Error> {
        let numbers = self.noise.next(step.from.sigma, step.to.sigma);
        self.math.upload_like(&numbers, like)
    }
}

/// The result of a step.
struct Stepped<L> {
    x: L,
    denoised: L,
}

/// One sampler's way from a noise level to the next. Holds what it remembers of earlier steps.
trait Formula<M: LatentMath> {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error>;
}

/// Straight along the line through `x` and the clean picture: `x0 + (to / from) * (x - x0)`.
fn euler_step<M: LatentMath>(
    tools: &Tools<'_, M>,
    x: &M::Latent,
    denoised: &M::Latent,
    from: f64,
    to: f64,
) -> Result<M::Latent, M::Error> {
    let ratio = to / from;
    tools.combine(&[(ratio, x), (1.0 - ratio, denoised)])
}

#[cfg(test)]
mod tests;

//! Which noise levels a run visits.
//!
//! [`SigmaSchedule::steps`] turns a schedule's name, a step count and a strength into [`SigmaSteps`]. The names and the
//! resulting sigmas are ComfyUI's, save for `model`, which is the spacing of the model's own `scheduler_config.json` as
//! diffusers computes it for the class with the sampler's formulas.
//!
//! **Strength** (image-to-image; ComfyUI calls it denoise) below 1 starts from a noised picture at a lower sigma. The
//! two families mean different things by it, and each schedule follows its own:
//! - `model`, as diffusers: of `count` steps the last `floor(count * strength)` are done.
//! - all others, as ComfyUI: `count` steps are done, the last of a schedule of `floor(count / strength)`; above 0.9999
//!   counts as 1.
//!
//! **The timestep** the network is told: for `model` diffusers' (whole or fractional), for all others the whole one
//! whose log sigma is nearest, as in ComfyUI.

mod model;
mod named;

use std::fmt;
use std::str::FromStr;

use crate::noise_config::NoiseConfig;
use crate::noise_table::NoiseTableError;
use crate::sampler::Sampler;

/// The largest step count of a run.
pub const STEP_COUNT_MAX: usize = 10_000;

/// A schedule of noise levels, by ComfyUI's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigmaSchedule {
    /// The spacing of the model's own scheduler config, as diffusers computes it.
    Model,
    /// Evenly spaced timesteps from the last to the first, then sigma 0.
    Normal,
    /// Karras et al. 2022, equation 5, with rho 7, from the table's largest sigma to its smallest, then 0.
    Karras,
    /// Every so-many-th entry of the table, counted from the noisiest, then 0.
    Simple,
    /// `normal` with one more step, whose last timestep is left out, then 0.
    SgmUniform,
    /// Every so-many-th entry of the table, counted from the cleanest but one, then 0. Its stride is a whole number, so
    /// it may have more steps than asked for (31 for 30), never starts at the noisiest level, and has fewer steps than
    /// asked for when the table is too short.
    DdimUniform,
    /// Evenly spaced logarithms from the table's largest sigma to its smallest, then 0.
    Exponential,
}

impl SigmaSchedule {
    /// Every schedule.
    pub const ALL: [Self; 7] =
        [Self::Model, Self::Normal, Self::Karras, Self::Simple, Self::SgmUniform, Self::DdimUniform, Self::Exponential];

    /// The name it goes by in options, files and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Normal => "normal",
            Self::Karras => "karras",
            Self::Simple => "simple",
            Self::SgmUniform => "sgm_uniform",
            Self::DdimUniform => "ddim_uniform",
            Self::Exponential => "exponential",
        }
    }

    /// The steps of a run: `count` of them at `strength` 1, see the module for less.
    ///
    /// `sampler` matters to [`Model`](Self::Model) only, whose rule is that of the sampler's class in diffusers.
    ///
    /// # Errors
    /// [`ScheduleError`] if `count` or `strength` is out of range or leaves nothing to do.
    pub fn steps(
        self,
        config: &NoiseConfig,
        sampler: Sampler,
        count: usize,
        strength: f64,
    ) -> Result<SigmaSteps, ScheduleError> {
        if count == 0 {
            return Err(ScheduleError::NoSteps);
        }
        if count > STEP_COUNT_MAX {
            return Err(ScheduleError::TooManySteps { count: count as f64, max: STEP_COUNT_MAX });
        }
        if !(strength > 0.0 && strength <= 1.0) {
            return Err(ScheduleError::Strength { strength });
        }
        match self {
            Self::Model => model::steps(config, sampler, count, strength),
            named => named::steps(named, &config.table()?, count, strength),
        }
    }
}

impl fmt::Display for SigmaSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SigmaSchedule {
    type Err = UnknownSchedule;

    fn from_str(name: &str) -> Result<Self, UnknownSchedule> {
        Self::ALL
            .into_iter()
            .find(|schedule| schedule.name() == name)
            .ok_or_else(|| UnknownSchedule { name: name.to_owned() })
    }
}

/// No schedule has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown schedule `{name}`; known: {}", Self::known())]
pub struct UnknownSchedule {
    /// The name that was given.
    pub name: String,
}

impl UnknownSchedule {
    fn known() -> String {
        SigmaSchedule::ALL.map(|schedule| format!("`{schedule}`")).join(", ")
    }
}

/// One noise level, and what the network is told about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseLevel {
    /// Standard deviation of the noise in `x = x0 + sigma * noise`.
    pub sigma: f64,
    /// The timestep the network is given; may be fractional.
    pub timestep: f64,
}

/// One step of a run: from a noise level to a lower one.
///
/// `to` is the `from` of the next step, with one exception: diffusers' DDIM class counts back a fixed stride from each
/// timestep, which may miss the next timestep by a little (trailing and linspace spacing). The sampler then carries
/// the variance-preserving form of the sample over unchanged, as diffusers does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SigmaStep {
    /// Where `x` is.
    pub from: NoiseLevel,
    /// Where it goes. The timestep is meaningful only when the sigma is above 0.
    pub to: NoiseLevel,
}

/// The steps of a run, and how it begins and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct SigmaSteps {
    /// At least one, with falling sigmas.
    pub steps: Vec<SigmaStep>,
    /// Text-to-image: `x = noise * noise_scale`.
    pub noise_scale: f64,
    /// Image-to-image: `x = latent + noise * noise_scale_on_image`.
    pub noise_scale_on_image: f64,
    /// What the last `x` is multiplied with to become the latent: 1, or back to the variance-preserving form if the
    /// last sigma is above 0.
    pub final_scale: f64,
}

impl SigmaSteps {
    /// All sigmas: the `from` of each step, and where the last one goes.
    pub fn sigmas(&self) -> Vec<f64> {
        let last = self.steps.last().map(|step| step.to.sigma);
        self.steps.iter().map(|step| step.from.sigma).chain(last).collect()
    }

    /// The timestep of each step.
    pub fn timesteps(&self) -> Vec<f64> {
        self.steps.iter().map(|step| step.from.timestep).collect()
    }

    /// Steps between consecutive levels.
    fn between(levels: &[NoiseLevel]) -> Vec<SigmaStep> {
        levels.windows(2).map(|pair| SigmaStep { from: pair[0], to: pair[1] }).collect()
    }
}

/// A run that can't be scheduled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// Zero steps. Ask for at least one.
    #[error("0 steps draw nothing; ask for at least 1")]
    NoSteps,
    /// More steps than any run needs, asked for directly or by a small strength.
    #[error("{count} steps are too many; take at most {max}, or more strength")]
    TooManySteps {
        /// How many the schedule would have.
        count: f64,
        /// How many it may have.
        max: usize,
    },
    /// The `model` schedule needs a timestep of its own for each step. Take fewer steps or another schedule.
    #[error(
        "{count} steps are too many for schedule `model`, which has {max} timesteps for them; take fewer steps or another schedule"
    )]
    TooFewTimesteps {
        /// How many were asked for.
        count: usize,
        /// How many there are.
        max: usize,
    },
    /// The spacing and its offset lead past the last trained timestep. Take fewer steps or another schedule.
    #[error(
        "schedule `model` with {count} steps begins at timestep {timestep}, but the last one trained is {last}; take \
         fewer steps or another schedule"
    )]
    BeyondTraining {
        /// How many were asked for.
        count: usize,
        /// The first timestep.
        timestep: usize,
        /// The last one there is.
        last: usize,
    },
    /// A strength outside of (0, 1].
    #[error("strength `{strength}` must be above 0 and at most 1")]
    Strength {
        /// What was given.
        strength: f64,
    },
    /// With schedule `model`, `floor(count * strength)` is 0. Take more steps or more strength.
    #[error("strength `{strength}` leaves none of {count} steps to do; raise either")]
    StrengthLeavesNothing {
        /// How many steps were asked for.
        count: usize,
        /// What was given.
        strength: f64,
    },
    /// The model's betas make no noise schedule.
    #[error(transparent)]
    Table(#[from] NoiseTableError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_schedule_lists_the_known_ones() {
        for schedule in SigmaSchedule::ALL {
            assert_eq!(schedule.name().parse(), Ok(schedule));
        }
        let error = "beta".parse::<SigmaSchedule>().unwrap_err().to_string();
        let known = "`model`, `normal`, `karras`, `simple`, `sgm_uniform`, `ddim_uniform`, `exponential`";
        assert_eq!(error, format!("unknown schedule `beta`; known: {known}"));
    }

    #[test]
    fn refuses_counts_and_strengths_out_of_range() {
        let config = NoiseConfig::default();
        for schedule in SigmaSchedule::ALL {
            let steps = |count, strength| schedule.steps(&config, Sampler::Euler, count, strength).map(|_| ());
            assert_eq!(steps(0, 1.0), Err(ScheduleError::NoSteps));
            assert_eq!(steps(10_001, 1.0), Err(ScheduleError::TooManySteps { count: 10_001.0, max: 10_000 }));
            for strength in [0.0, -1.0, 1.01, f64::INFINITY] {
                assert_eq!(steps(20, strength), Err(ScheduleError::Strength { strength }));
            }
            assert!(steps(20, f64::NAN).is_err());
            assert!(steps(20, 1e-9).is_err());
        }
        let error = SigmaSchedule::Model.steps(&config, Sampler::Ddim, 1001, 1.0).unwrap_err();
        assert_eq!(error, ScheduleError::TooFewTimesteps { count: 1001, max: 1000 });
        let error = SigmaSchedule::Model.steps(&config, Sampler::Ddim, 1000, 1.0).unwrap_err();
        assert_eq!(error, ScheduleError::BeyondTraining { count: 1000, timestep: 1000, last: 999 });
        let error = SigmaSchedule::Model.steps(&config, Sampler::Ddim, 10, 0.05).unwrap_err();
        assert_eq!(error, ScheduleError::StrengthLeavesNothing { count: 10, strength: 0.05 });
    }

    #[test]
    fn sigmas_fall_and_steps_join() {
        let config = NoiseConfig::default();
        for schedule in SigmaSchedule::ALL {
            for count in [1, 2, 3, 7, 20, 30, 50, 333] {
                for strength in [1.0, 0.6] {
                    // Half of one step is none in diffusers' reading.
                    let Ok(run) = schedule.steps(&config, Sampler::Euler, count, strength) else {
                        assert!(schedule == SigmaSchedule::Model && count == 1);
                        continue;
                    };
                    assert!(run.steps.windows(2).all(|pair| pair[0].to == pair[1].from), "{schedule} {count}");
                    assert!(run.steps.iter().all(|step| step.from.sigma > step.to.sigma), "{schedule} {count}");
                    assert_eq!(run.steps.last().unwrap().to.sigma, 0.0, "{schedule} {count}");
                    let expected = match schedule {
                        SigmaSchedule::Model => (count as f64 * strength) as usize,
                        _ => count,
                    };
                    // `ddim_uniform` keeps its whole stride instead of the count.
                    let keeps_count = schedule != SigmaSchedule::DdimUniform || strength < 1.0;
                    assert!(!keeps_count || run.steps.len() == expected, "{schedule} {count} {strength}");
                }
            }
        }
    }
}

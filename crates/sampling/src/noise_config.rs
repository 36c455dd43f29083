//! What a model's `scheduler_config.json` says about noise.
//!
//! Deliberately not a scheduler: samplers and schedules are chosen by the user, and this only holds what the model was
//! trained with (betas, prediction) and the spacing its authors recommend. Options of diffusers that change the result
//! and that nothing here implements are refused unless they are off; options that can't change the result of our
//! samplers are accepted. A key that isn't one of diffusers' is an error.

mod file;

use serde::Deserialize;

use crate::noise_table::{NoiseTable, NoiseTableError};
use crate::prediction::Prediction;
use crate::sampler::Sampler;

/// What the model predicts, its betas, and its own timestep spacing.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseConfig {
    /// How many timesteps the model was trained on.
    pub train_timestep_count: usize,
    /// Where betas come from.
    pub betas: Betas,
    /// Whether the betas are rescaled so that the last timestep is pure noise.
    pub zero_terminal_snr: bool,
    /// What the network's output means.
    pub prediction: Prediction,
    /// How timesteps are spread over the training timesteps; `None` leaves it to the rule of the sampler's class.
    pub timestep_spacing: Option<TimestepSpacing>,
    /// Added to every timestep of leading spacing.
    pub steps_offset: usize,
    /// Whether the last step of the `ddim` rule ends at sigma 0; otherwise at the sigma of timestep 0.
    pub final_alpha_is_one: bool,
    /// Whether the last step of the `euler` and `dpmpp` rules ends at sigma 0; otherwise at the table's smallest.
    pub final_sigma_is_zero: bool,
    /// How the `euler`, `heun` and `dpmpp` rules replace the sigmas between the first and the last.
    pub sigma_spacing: SigmaSpacing,
    /// How many steps a consistency model was distilled from (`lcm` rule).
    pub lcm_origin_step_count: usize,
    /// The sampler with the formulas of the class that the config is for, if there is one here.
    pub sampler: Option<Sampler>,
}

/// The sequence of betas, as diffusers names them.
#[derive(Clone, Debug, PartialEq)]
pub enum Betas {
    /// Evenly spaced (Ho et al. 2020).
    Linear {
        /// Beta of timestep 0.
        start: f64,
        /// Beta of the last timestep.
        end: f64,
    },
    /// With evenly spaced square roots (Rombach et al. 2022).
    ScaledLinear {
        /// Beta of timestep 0.
        start: f64,
        /// Beta of the last timestep.
        end: f64,
    },
    /// From a squared cosine `alpha_bar`, betas capped at 0.999 (Nichol, Dhariwal 2021).
    SquaredCosine,
    /// Listed one by one.
    Trained(Vec<f64>),
}

/// How timesteps are spread. (Lin et al. 2024, table 2.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimestepSpacing {
    /// Multiples of a whole number, from 0 up.
    Leading,
    /// Down from the last timestep in equal strides.
    Trailing,
    /// Evenly from 0 to the last timestep.
    Linspace,
}

/// What replaces the sigmas of the chosen timesteps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigmaSpacing {
    /// Nothing.
    Unchanged,
    /// Karras et al. 2022 with rho 7.
    Karras,
    /// Evenly spaced logarithms.
    Exponential,
}

/// A `scheduler_config.json` that can't be followed.
#[derive(Debug, thiserror::Error)]
pub enum NoiseConfigError {
    /// Not JSON, a key or value that diffusers doesn't know, or a value of the wrong type.
    #[error("the scheduler config can't be read: {0}")]
    Parse(#[from] serde_json::Error),
    /// An option of diffusers that nothing here implements.
    #[error("the scheduler config has `{key}` = `{value}`, which is not supported; supported: {supported}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value in the file.
        value: String,
        /// The values that are.
        supported: &'static str,
    },
    /// The betas make no noise schedule.
    #[error(transparent)]
    Table(#[from] NoiseTableError),
}

impl NoiseConfig {
    /// Reads the text of a `scheduler_config.json`, and checks that the betas make a noise schedule.
    ///
    /// # Errors
    /// [`NoiseConfigError`] if it can't be read, or asks for something not supported.
    pub fn from_json(json: &str) -> Result<Self, NoiseConfigError> {
        // From a list, serde would fill the fields in their order.
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)?;
        let file: file::ConfigFile = serde_json::from_value(object.into())?;
        let config = file.check()?;
        config.table()?;
        Ok(config)
    }

    /// The betas, one for each training timestep.
    pub fn beta_values(&self) -> Vec<f64> {
        let count = self.train_timestep_count;
        let linear = |start: f64, end: f64| {
            (0..count).map(move |idx| start + (end - start) * idx as f64 / (count - 1).max(1) as f64)
        };
        match &self.betas {
            Betas::Linear { start, end } => linear(*start, *end).collect(),
            Betas::ScaledLinear { start, end } => linear(start.sqrt(), end.sqrt()).map(|root| root * root).collect(),
            Betas::SquaredCosine => {
                let alpha_bar = |time: f64| ((time + 0.008) / 1.008 * std::f64::consts::FRAC_PI_2).cos().powi(2);
                let time = |idx: usize| idx as f64 / count as f64;
                (0..count).map(|idx| (1.0 - alpha_bar(time(idx + 1)) / alpha_bar(time(idx))).min(0.999)).collect()
            }
            Betas::Trained(betas) => betas.clone(),
        }
    }

    /// The noise table as ComfyUI has it.
    ///
    /// # Errors
    /// [`NoiseTableError`] if the betas make none.
    pub fn table(&self) -> Result<NoiseTable, NoiseTableError> {
        self.table_with_terminal(crate::noise_table::COMFY_TERMINAL_ALPHA_BAR)
    }

    /// The noise table with that `alpha_bar` at the last timestep if the betas are rescaled to zero terminal SNR.
    ///
    /// # Errors
    /// [`NoiseTableError`] if the betas make none.
    pub fn table_with_terminal(&self, alpha_bar: f64) -> Result<NoiseTable, NoiseTableError> {
        if self.zero_terminal_snr {
            NoiseTable::with_zero_terminal_snr(&self.beta_values(), alpha_bar)
        } else {
            NoiseTable::from_betas(&self.beta_values())
        }
    }
}

/// Stable Diffusion 1.5's training (Rombach et al. 2022), for checkpoints that bring no scheduler config.
impl Default for NoiseConfig {
    fn default() -> Self {
        Self {
            train_timestep_count: 1000,
            betas: Betas::ScaledLinear { start: 0.000_85, end: 0.012 },
            zero_terminal_snr: false,
            prediction: Prediction::Epsilon,
            timestep_spacing: Some(TimestepSpacing::Leading),
            steps_offset: 1,
            final_alpha_is_one: false,
            final_sigma_is_zero: true,
            sigma_spacing: SigmaSpacing::Unchanged,
            lcm_origin_step_count: 50,
            sampler: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_diffusers_writes() {
        let json = r#"{"_class_name": "DDIMScheduler", "_diffusers_version": "0.42.1", "beta_end": 0.012,
            "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": false, "set_alpha_to_one": false,
            "steps_offset": 1, "timestep_spacing": "leading", "trained_betas": null}"#;
        let expected = NoiseConfig { sampler: Some(Sampler::Ddim), ..NoiseConfig::default() };
        assert_eq!(NoiseConfig::from_json(json).unwrap(), expected);
        let json = r#"{"_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "sde-dpmsolver++"}"#;
        assert_eq!(NoiseConfig::from_json(json).unwrap().sampler, Some(Sampler::Dpmpp2mSde));
        assert_eq!(NoiseConfig::from_json(r#"{"_class_name": "PNDMScheduler"}"#).unwrap().sampler, None);
    }

    #[test]
    fn names_what_it_cannot_follow() {
        for (json, expected) in [
            ("{", "can't be read"),
            ("[]", "invalid type: sequence, expected a map"),
            (
                r#"{"beta_shedule": "linear"}"#,
                "unknown field `beta_shedule`, expected one of `_class_name`, `num_train_timesteps`",
            ),
            (r#"{"beta_schedule": "sigmoid"}"#, "unknown variant `sigmoid`, expected one of `linear`, `scaled_linear`"),
            (r#"{"prediction_type": "flow"}"#, "unknown variant `flow`"),
            (
                r#"{"_class_name": "FlowMatchEulerDiscreteScheduler"}"#,
                "`_class_name` = `FlowMatchEulerDiscreteScheduler`",
            ),
            (r#"{"clip_sample": true}"#, "`clip_sample` = `true`, which is not supported"),
            (r#"{"use_beta_sigmas": true}"#, "`use_beta_sigmas`"),
            (r#"{"solver_order": 3}"#, "`solver_order` = `3`"),
            (r#"{"num_train_timesteps": 99999999999}"#, "`num_train_timesteps` = `99999999999`"),
            (r#"{"num_train_timesteps": 1}"#, "`num_train_timesteps` = `1`"),
            (r#"{"beta_start": 0}"#, "beta 0 is `0`"),
            (r#"{"trained_betas": [0.1, 2]}"#, "beta 1 is `2`"),
        ] {
            let error = NoiseConfig::from_json(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}

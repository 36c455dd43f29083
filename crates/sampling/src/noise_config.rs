//! What a model's `scheduler_config.json` says about noise.
//!
//! Deliberately not a scheduler: samplers and schedules are chosen by the user, and this only holds what the model was
//! trained with (betas, prediction) and the spacing its authors recommend. Options of diffusers that change the result
//! and that nothing here implements are refused unless they are off; options that can't change the result of our
//! samplers are accepted. A key that isn't one of diffusers' is an error.

use std::fmt;

use serde::Deserialize;

use crate::noise_table::{NoiseTable, NoiseTableError};
use crate::prediction::Prediction;

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

/// Diffusers trains on 1,000 timesteps; the bound only keeps a hostile file from asking for gigabytes.
const TRAIN_TIMESTEP_COUNT_MAX: usize = 100_000;

impl NoiseConfig {
    /// Reads the text of a `scheduler_config.json`, and checks that the betas make a noise schedule.
    ///
    /// # Errors
    /// [`NoiseConfigError`] if it can't be read, or asks for something not supported.
    pub fn from_json(json: &str) -> Result<Self, NoiseConfigError> {
        let file: ConfigFile = serde_json::from_str(json)?;
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
        }
    }
}

/// The file as diffusers writes it. Defaults for missing keys are those of diffusers' DDIM class.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigFile {
    num_train_timesteps: usize,
    beta_start: f64,
    beta_end: f64,
    beta_schedule: BetaScheduleName,
    trained_betas: Option<Vec<f64>>,
    prediction_type: Prediction,
    rescale_betas_zero_snr: bool,
    timestep_spacing: Option<TimestepSpacing>,
    steps_offset: usize,
    set_alpha_to_one: bool,
    final_sigmas_type: FinalSigma,
    use_karras_sigmas: Option<bool>,
    use_exponential_sigmas: Option<bool>,
    original_inference_steps: usize,

    // Supported only where they change nothing.
    clip_sample: bool,
    thresholding: bool,
    use_beta_sigmas: Option<bool>,
    use_lu_lambdas: Option<bool>,
    use_flow_sigmas: Option<bool>,
    use_dynamic_shifting: Option<bool>,
    euler_at_final: bool,
    sigma_min: Option<f64>,
    sigma_max: Option<f64>,
    interpolation_type: String,
    timestep_type: String,
    solver_order: usize,
    solver_type: String,
    algorithm_type: String,
    timestep_scaling: f64,

    // Without effect on our samplers.
    #[serde(rename = "_class_name")]
    _class_name: serde::de::IgnoredAny,
    #[serde(rename = "_diffusers_version")]
    _diffusers_version: serde::de::IgnoredAny,
    #[serde(rename = "clip_sample_range")]
    _clip_sample_range: serde::de::IgnoredAny,
    #[serde(rename = "dynamic_thresholding_ratio")]
    _dynamic_thresholding_ratio: serde::de::IgnoredAny,
    #[serde(rename = "sample_max_value")]
    _sample_max_value: serde::de::IgnoredAny,
    #[serde(rename = "skip_prk_steps")]
    _skip_prk_steps: serde::de::IgnoredAny,
    #[serde(rename = "variance_type")]
    _variance_type: serde::de::IgnoredAny,
    #[serde(rename = "lower_order_final")]
    _lower_order_final: serde::de::IgnoredAny,
    #[serde(rename = "lambda_min_clipped")]
    _lambda_min_clipped: serde::de::IgnoredAny,
    #[serde(rename = "flow_shift")]
    _flow_shift: serde::de::IgnoredAny,
    #[serde(rename = "time_shift_type")]
    _time_shift_type: serde::de::IgnoredAny,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BetaScheduleName {
    Linear,
    ScaledLinear,
    #[serde(rename = "squaredcos_cap_v2")]
    SquaredCosine,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FinalSigma {
    Zero,
    SigmaMin,
}

impl Default for ConfigFile {
    fn default() -> Self {
        use serde::de::IgnoredAny;
        Self {
            num_train_timesteps: 1000,
            beta_start: 0.0001,
            beta_end: 0.02,
            beta_schedule: BetaScheduleName::Linear,
            trained_betas: None,
            prediction_type: Prediction::Epsilon,
            rescale_betas_zero_snr: false,
            timestep_spacing: None,
            steps_offset: 0,
            set_alpha_to_one: true,
            final_sigmas_type: FinalSigma::Zero,
            use_karras_sigmas: None,
            use_exponential_sigmas: None,
            original_inference_steps: 50,
            clip_sample: false,
            thresholding: false,
            use_beta_sigmas: None,
            use_lu_lambdas: None,
            use_flow_sigmas: None,
            use_dynamic_shifting: None,
            euler_at_final: false,
            sigma_min: None,
            sigma_max: None,
            interpolation_type: "linear".to_owned(),
            timestep_type: "discrete".to_owned(),
            solver_order: 2,
            solver_type: "midpoint".to_owned(),
            algorithm_type: "dpmsolver++".to_owned(),
            timestep_scaling: 10.0,
            _class_name: IgnoredAny,
            _diffusers_version: IgnoredAny,
            _clip_sample_range: IgnoredAny,
            _dynamic_thresholding_ratio: IgnoredAny,
            _sample_max_value: IgnoredAny,
            _skip_prk_steps: IgnoredAny,
            _variance_type: IgnoredAny,
            _lower_order_final: IgnoredAny,
            _lambda_min_clipped: IgnoredAny,
            _flow_shift: IgnoredAny,
            _time_shift_type: IgnoredAny,
        }
    }
}

impl ConfigFile {
    fn check(self) -> Result<NoiseConfig, NoiseConfigError> {
        let karras = self.use_karras_sigmas.unwrap_or(false);
        let exponential = self.use_exponential_sigmas.unwrap_or(false);
        let off = "`false`";
        require(!self.clip_sample, "clip_sample", self.clip_sample, off)?;
        require(!self.thresholding, "thresholding", self.thresholding, off)?;
        require(!self.euler_at_final, "euler_at_final", self.euler_at_final, off)?;
        for (key, value) in [
            ("use_beta_sigmas", self.use_beta_sigmas),
            ("use_lu_lambdas", self.use_lu_lambdas),
            ("use_flow_sigmas", self.use_flow_sigmas),
            ("use_dynamic_shifting", self.use_dynamic_shifting),
        ] {
            require(value != Some(true), key, true, off)?;
        }
        require(!(karras && exponential), "use_exponential_sigmas", true, "`false` beside `use_karras_sigmas`")?;
        for (key, value) in [("sigma_min", self.sigma_min), ("sigma_max", self.sigma_max)] {
            require(value.is_none(), key, value.unwrap_or_default(), "`null`")?;
        }
        require(self.interpolation_type == "linear", "interpolation_type", &self.interpolation_type, "`linear`")?;
        require(self.timestep_type == "discrete", "timestep_type", &self.timestep_type, "`discrete`")?;
        require(self.solver_order == 2, "solver_order", self.solver_order, "2")?;
        require(self.solver_type == "midpoint", "solver_type", &self.solver_type, "`midpoint`")?;
        let known_algorithm = matches!(self.algorithm_type.as_str(), "dpmsolver++" | "sde-dpmsolver++");
        require(known_algorithm, "algorithm_type", &self.algorithm_type, "`dpmsolver++`, `sde-dpmsolver++`")?;
        require(self.timestep_scaling == 10.0, "timestep_scaling", self.timestep_scaling, "10")?;
        let timestep_count = self.trained_betas.as_ref().map_or(self.num_train_timesteps, Vec::len);
        let countable = (2..=TRAIN_TIMESTEP_COUNT_MAX).contains(&timestep_count);
        require(countable, "num_train_timesteps", timestep_count, "2 to 100000")?;
        require(self.steps_offset <= timestep_count, "steps_offset", self.steps_offset, "0 to `num_train_timesteps`")?;
        let origin = self.original_inference_steps;
        require(origin > 0, "original_inference_steps", origin, "1 to `num_train_timesteps`")?;

        let (start, end) = (self.beta_start, self.beta_end);
        let betas = match (self.trained_betas, self.beta_schedule) {
            (Some(betas), _) => Betas::Trained(betas),
            (None, BetaScheduleName::Linear) => Betas::Linear { start, end },
            (None, BetaScheduleName::ScaledLinear) => Betas::ScaledLinear { start, end },
            (None, BetaScheduleName::SquaredCosine) => Betas::SquaredCosine,
        };
        let sigma_spacing = match (karras, exponential) {
            (true, _) => SigmaSpacing::Karras,
            (false, true) => SigmaSpacing::Exponential,
            (false, false) => SigmaSpacing::Unchanged,
        };
        Ok(NoiseConfig {
            train_timestep_count: timestep_count,
            betas,
            zero_terminal_snr: self.rescale_betas_zero_snr,
            prediction: self.prediction_type,
            timestep_spacing: self.timestep_spacing,
            steps_offset: self.steps_offset,
            final_alpha_is_one: self.set_alpha_to_one,
            final_sigma_is_zero: self.final_sigmas_type == FinalSigma::Zero,
            sigma_spacing,
            lcm_origin_step_count: origin,
        })
    }
}

fn require(
    holds: bool,
    key: &'static str,
    value: impl fmt::Display,
    supported: &'static str,
) -> Result<(), NoiseConfigError> {
    if holds { Ok(()) } else { Err(NoiseConfigError::Unsupported { key, value: value.to_string(), supported }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_diffusers_writes() {
        let json = r#"{"_class_name": "DDIMScheduler", "_diffusers_version": "0.42.1", "beta_end": 0.012,
            "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": false, "set_alpha_to_one": false,
            "steps_offset": 1, "timestep_spacing": "leading", "trained_betas": null}"#;
        assert_eq!(NoiseConfig::from_json(json).unwrap(), NoiseConfig::default());
    }

    #[test]
    fn names_what_it_cannot_follow() {
        for (json, expected) in [
            ("{", "can't be read"),
            (r#"{"beta_shedule": "linear"}"#, "unknown field `beta_shedule`, expected one of `num_train_timesteps`"),
            (r#"{"beta_schedule": "sigmoid"}"#, "unknown variant `sigmoid`, expected one of `linear`, `scaled_linear`"),
            (r#"{"prediction_type": "flow"}"#, "unknown variant `flow`"),
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

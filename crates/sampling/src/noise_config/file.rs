//! The keys of a `scheduler_config.json`, and which of their values can be followed.

use std::fmt;

use serde::Deserialize;

use super::{Betas, NoiseConfig, NoiseConfigError, SigmaSpacing, TimestepSpacing};
use crate::prediction::Prediction;
use crate::sampler::Sampler;

/// Diffusers trains on 1,000 timesteps; the bound only keeps a hostile file from asking for gigabytes.
const TRAIN_TIMESTEP_COUNT_MAX: usize = 100_000;

/// The file as diffusers writes it. Defaults for missing keys are those of diffusers' DDIM class.
/// diffusers' classes over the same noise tables whose formulas none of our samplers has; a model that names one is drawn
/// with another sampler along the same timesteps.
const OTHER_CLASSES: [&str; 7] = [
    "DDPMScheduler",
    "DPMSolverSinglestepScheduler",
    "DEISMultistepScheduler",
    "KDPM2DiscreteScheduler",
    "KDPM2AncestralDiscreteScheduler",
    "LMSDiscreteScheduler",
    "PNDMScheduler",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ConfigFile {
    #[serde(rename = "_class_name")]
    class_name: Option<String>,
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
            class_name: None,
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
    /// The config, if nothing in the file asks for what isn't supported.
    pub(super) fn check(self) -> Result<NoiseConfig, NoiseConfigError> {
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
        if let Some(class) = &self.class_name
            && Sampler::of_diffusers_class(class).is_none()
            && !OTHER_CLASSES.contains(&class.as_str())
        {
            return Err(NoiseConfigError::Unsupported {
                key: "_class_name",
                value: class.escape_debug().to_string(),
                supported: "diffusers' schedulers for discrete timesteps, such as `DDIMScheduler`",
            });
        }
        let sampler = match self.class_name.as_deref().and_then(Sampler::of_diffusers_class) {
            Some(Sampler::Dpmpp2m) if self.algorithm_type == "sde-dpmsolver++" => Some(Sampler::Dpmpp2mSde),
            sampler => sampler,
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
            sampler,
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

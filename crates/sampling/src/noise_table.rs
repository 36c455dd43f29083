//! The noise levels a model was trained on: one sigma for each training timestep.
//!
//! `alpha_bar` is the cumulative product of `1 - beta` (Ho et al. 2020), and `sigma = sqrt((1 - alpha_bar) / alpha_bar)`
//! is the noise level in the variance-exploding form `x = x0 + sigma * noise` that the samplers work in.
//!
//! What always holds: sigmas are finite, positive and strictly ascending with the timestep. All numbers are f64;
//! diffusers computes betas in f32, which moves its sigmas by some 1e-6 of their value.

/// `alpha_bar` that ComfyUI gives the last timestep under zero terminal SNR: sigma is about 4518.8.
pub const COMFY_TERMINAL_ALPHA_BAR: f64 = 4.897_345_189_085_343_5e-8;
/// `alpha_bar` that diffusers' Euler and DPM-Solver classes give it, 2^-24: sigma is about 4096.
pub const DIFFUSERS_TERMINAL_ALPHA_BAR: f64 = 1.0 / (1u64 << 24) as f64;
/// Stands for diffusers' DDIM and LCM classes, which keep an `alpha_bar` of exactly zero. 2^-48 is as good as zero
/// in f32 (the signal is 6e-8 of the noise) and keeps sigma finite.
pub const NEAR_ZERO_TERMINAL_ALPHA_BAR: f64 = 1.0 / (1u64 << 48) as f64;

/// Sigmas by training timestep, ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct NoiseTable {
    sigmas: Vec<f64>,
}

/// These betas are no noise schedule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoiseTableError {
    /// No betas. A schedule has one for each training timestep.
    #[error("there are no betas; a noise schedule needs at least 2")]
    TooFew,
    /// A beta outside the open interval (0, 1), or not a number.
    #[error("beta {timestep} is `{beta}`, but every beta must be above 0 and below 1")]
    Beta {
        /// Its index.
        timestep: usize,
        /// Its value.
        beta: f64,
    },
    /// The signal vanishes before the last timestep, so that sigma overflows.
    #[error("the betas leave no signal at timestep {timestep}; they are too large")]
    NoSignal {
        /// The first timestep without signal.
        timestep: usize,
    },
}

impl NoiseTable {
    /// The table of a training run's betas.
    ///
    /// # Errors
    /// [`NoiseTableError`] if there are fewer than two, or one is not within (0, 1), or they leave no signal.
    pub fn from_betas(betas: &[f64]) -> Result<Self, NoiseTableError> {
        Ok(Self::from_alpha_bars(&alpha_bars(betas)?))
    }

    /// As [`from_betas`](Self::from_betas), rescaled to zero terminal SNR: `sqrt(alpha_bar)` is shifted and scaled so
    /// that its first value stays and its last is zero (Lin et al. 2024, "Common Diffusion Noise Schedules and Sample
    /// Steps are Flawed", algorithm 1). The last `alpha_bar` becomes `terminal_alpha_bar` for a finite sigma.
    ///
    /// # Errors
    /// As [`from_betas`](Self::from_betas).
    pub fn with_zero_terminal_snr(betas: &[f64], terminal_alpha_bar: f64) -> Result<Self, NoiseTableError> {
        let mut alpha_bars = alpha_bars(betas)?;
        let first = alpha_bars[0].sqrt();
        let last = alpha_bars[alpha_bars.len() - 1].sqrt();
        for alpha_bar in &mut alpha_bars {
            *alpha_bar = ((alpha_bar.sqrt() - last) * (first / (first - last))).powi(2);
        }
        let penultimate = alpha_bars[alpha_bars.len() - 2];
        *alpha_bars.last_mut().expect("there are at least 2") = terminal_alpha_bar.min(penultimate / 2.0);
        Ok(Self::from_alpha_bars(&alpha_bars))
    }

    fn from_alpha_bars(alpha_bars: &[f64]) -> Self {
        Self { sigmas: alpha_bars.iter().map(|alpha_bar| ((1.0 - alpha_bar) / alpha_bar).sqrt()).collect() }
    }

    /// Sigmas by timestep, ascending.
    pub fn sigmas(&self) -> &[f64] {
        &self.sigmas
    }

    /// How many timesteps the model was trained on.
    pub fn timestep_count(&self) -> usize {
        self.sigmas.len()
    }

    /// The sigma of timestep 0.
    pub fn sigma_min(&self) -> f64 {
        self.sigmas[0]
    }

    /// The sigma of the last timestep.
    pub fn sigma_max(&self) -> f64 {
        self.sigmas[self.sigmas.len() - 1]
    }

    /// The sigma of a possibly fractional timestep, interpolated in log sigma (ComfyUI). Clamps to the table.
    pub fn sigma_at(&self, timestep: f64) -> f64 {
        self.interpolate(timestep, |low, high, weight| ((1.0 - weight) * low.ln() + weight * high.ln()).exp())
    }

    /// The sigma of a possibly fractional timestep, interpolated in sigma (diffusers). Clamps to the table.
    pub fn sigma_at_linear(&self, timestep: f64) -> f64 {
        self.interpolate(timestep, |low, high, weight| low + weight * (high - low))
    }

    fn interpolate(&self, timestep: f64, between: impl Fn(f64, f64, f64) -> f64) -> f64 {
        let timestep = timestep.clamp(0.0, (self.sigmas.len() - 1) as f64);
        let low_idx = timestep.floor() as usize;
        let weight = timestep - low_idx as f64;
        if weight == 0.0 {
            self.sigmas[low_idx]
        } else {
            between(self.sigmas[low_idx], self.sigmas[low_idx + 1], weight)
        }
    }

    /// The possibly fractional timestep of a sigma, interpolated in log sigma: the inverse of
    /// [`sigma_at`](Self::sigma_at). Clamps to the table.
    pub fn timestep_of(&self, sigma: f64) -> f64 {
        let above = self.sigmas.partition_point(|&table_sigma| table_sigma <= sigma);
        let low_idx = above.saturating_sub(1).min(self.sigmas.len() - 2);
        let (low, high) = (self.sigmas[low_idx].ln(), self.sigmas[low_idx + 1].ln());
        let weight = ((sigma.max(1e-10).ln() - low) / (high - low)).clamp(0.0, 1.0);
        low_idx as f64 + weight
    }

    /// The integer timestep whose log sigma is nearest: what ComfyUI gives the model.
    pub fn nearest_timestep(&self, sigma: f64) -> usize {
        let exact = self.timestep_of(sigma);
        let low_idx = exact.floor() as usize;
        if exact - low_idx as f64 > 0.5 { low_idx + 1 } else { low_idx }
    }
}

/// Cumulative products of `1 - beta`.
fn alpha_bars(betas: &[f64]) -> Result<Vec<f64>, NoiseTableError> {
    if betas.len() < 2 {
        return Err(NoiseTableError::TooFew);
    }
    let mut alpha_bar = 1.0;
    let mut alpha_bars = Vec::with_capacity(betas.len());
    for (timestep, &beta) in betas.iter().enumerate() {
        if !(beta > 0.0 && beta < 1.0) {
            return Err(NoiseTableError::Beta { timestep, beta });
        }
        alpha_bar *= 1.0 - beta;
        // Sigma goes through f32 coefficients, where 1e-30 still has a finite square root of its inverse.
        if alpha_bar < 1e-30 {
            return Err(NoiseTableError::NoSignal { timestep });
        }
        alpha_bars.push(alpha_bar);
    }
    if alpha_bars[0] == 1.0 {
        return Err(NoiseTableError::Beta { timestep: 0, beta: betas[0] });
    }
    Ok(alpha_bars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestep_and_its_sigma_are_inverse_to_each_other() {
        let table = NoiseTable::from_betas(&[0.01, 0.02, 0.1, 0.3]).unwrap();
        for timestep in [0.0, 0.25, 1.0, 1.5, 2.9, 3.0] {
            assert!((table.timestep_of(table.sigma_at(timestep)) - timestep).abs() < 1e-9);
        }
        assert_eq!((table.timestep_of(0.0), table.timestep_of(1e9)), (0.0, 3.0));
        assert_eq!((table.nearest_timestep(table.sigma_at(1.4)), table.nearest_timestep(table.sigma_at(1.6))), (1, 2));
    }

    #[test]
    fn refuses_what_is_no_schedule() {
        assert_eq!(NoiseTable::from_betas(&[0.1]), Err(NoiseTableError::TooFew));
        for bad in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            let error = NoiseTable::from_betas(&[0.1, bad]).unwrap_err();
            assert!(matches!(error, NoiseTableError::Beta { timestep: 1, .. }), "{error}");
        }
        assert!(matches!(NoiseTable::from_betas(&[0.9; 1000]), Err(NoiseTableError::NoSignal { .. })));
        assert!(NoiseTable::from_betas(&[1e-300, 0.1]).is_err());
    }
}

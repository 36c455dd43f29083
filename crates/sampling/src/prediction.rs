//! What the network's output means, and how it becomes the clean picture.
//!
//! Samplers work in the variance-exploding form `x = x0 + sigma * noise`. Networks were trained in the
//! variance-preserving one, whose samples are `x / sqrt(1 + sigma^2)`: that is the network's input, and with it every
//! prediction is a linear combination of `x` and the output. Coefficients are f64 and stay finite for every positive
//! sigma, also for the thousands that stand for zero terminal SNR.

use serde::Deserialize;

/// What the network predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prediction {
    /// The noise (Ho et al. 2020).
    Epsilon,
    /// The velocity `sqrt(alpha_bar) * noise - sqrt(1 - alpha_bar) * x0` (Salimans, Ho 2022).
    VPrediction,
    /// The clean picture.
    #[serde(alias = "original_sample")]
    Sample,
}

/// `x0 = of_x * x + of_output * output`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DenoisedTerms {
    /// The factor of the sampler's `x` (not of the network's scaled input).
    pub of_x: f64,
    /// The factor of the network's output.
    pub of_output: f64,
}

impl Prediction {
    /// How the clean picture follows from `x` and the network's output at noise level `sigma`.
    pub fn denoised(self, sigma: f64) -> DenoisedTerms {
        match self {
            Self::Epsilon => DenoisedTerms { of_x: 1.0, of_output: -sigma },
            Self::VPrediction => {
                let scale = model_input_scale(sigma);
                DenoisedTerms { of_x: scale * scale, of_output: -sigma * scale }
            }
            Self::Sample => DenoisedTerms { of_x: 0.0, of_output: 1.0 },
        }
    }
}

/// `1 / sqrt(1 + sigma^2)`: what `x` is multiplied with to become the network's input.
pub fn model_input_scale(sigma: f64) -> f64 {
    1.0 / sigma.hypot(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the exact output for a known picture and noise, and expects the picture back.
    #[test]
    fn every_prediction_gives_the_picture_back() {
        let (picture, noise) = (0.7, -1.3);
        for sigma in [0.03, 1.0, 14.6, 157.0, 4518.8, 16_777_216.0] {
            let x = picture + sigma * noise;
            let alpha = model_input_scale(sigma);
            for (prediction, output) in [
                (Prediction::Epsilon, noise),
                (Prediction::VPrediction, alpha * noise - sigma * alpha * picture),
                (Prediction::Sample, picture),
            ] {
                let terms = prediction.denoised(sigma);
                let denoised = terms.of_x * x + terms.of_output * output;
                assert!((denoised - picture).abs() < 1e-8 * sigma.max(1.0), "{prediction:?} at {sigma}: {denoised}");
            }
        }
    }

    #[test]
    fn at_zero_terminal_snr_the_velocity_alone_decides() {
        let terms = Prediction::VPrediction.denoised(16_777_216.0);
        assert!(terms.of_x < 1e-14 && (terms.of_output + 1.0).abs() < 1e-14);
    }
}

//! DPM-Solver++(2M) (Lu et al. 2022, "DPM-Solver++", algorithm 2), second order from the previous step's prediction.
//!
//! In variance-exploding form `lambda = -ln sigma`, and with `h` the rise of lambda in a step, `exp(-h) = to / from`.
//! First order, which is Euler's step: at the beginning, when there is no previous prediction, and to sigma 0.

use super::{Formula, LatentMath, Stepped, Tools, euler_step};
use crate::schedule::SigmaStep;

pub(super) struct Dpmpp2m<L> {
    /// The last denoised picture and the noise level it was predicted at.
    previous: Option<(L, f64)>,
}

impl<L> Default for Dpmpp2m<L> {
    fn default() -> Self {
        Self { previous: None }
    }
}

impl<M: LatentMath> Formula<M> for Dpmpp2m<M::Latent> {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error> {
        let (from, to) = (step.from.sigma, step.to.sigma);
        let denoised = tools.denoise(&x, step.from)?;
        let x = match &self.previous {
            Some((previous_denoised, previous_sigma)) if to > 0.0 => {
                let ratio = to / from;
                let extrapolation = extrapolation(*previous_sigma, from, to) / 2.0;
                tools.combine(&[
                    (ratio, &x),
                    ((1.0 - ratio) * (1.0 + extrapolation), &denoised),
                    ((1.0 - ratio) * -extrapolation, previous_denoised),
                ])?
            }
            _ => euler_step(tools, &x, &denoised, from, to)?,
        };
        self.previous = Some((denoised.clone(), from));
        Ok(Stepped { x, denoised })
    }
}

/// `1 / r`: this step's `h` over the previous one's.
pub(super) fn extrapolation(previous: f64, from: f64, to: f64) -> f64 {
    (from / to).ln() / (previous / from).ln()
}

//! Heun's method on the probability flow ODE (Karras et al. 2022, algorithm 1): Euler's step, corrected by the slope at
//! its end. The last step, to sigma 0, where there is no slope, stays Euler's.

use super::{Formula, LatentMath, Stepped, Tools, euler_step};
use crate::schedule::SigmaStep;

pub(super) struct Heun;

impl<M: LatentMath> Formula<M> for Heun {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error> {
        let (from, to) = (step.from.sigma, step.to.sigma);
        let denoised = tools.denoise(&x, step.from)?;
        let predicted = euler_step(tools, &x, &denoised, from, to)?;
        if to == 0.0 {
            return Ok(Stepped { x: predicted, denoised });
        }
        let denoised_at_end = tools.denoise(&predicted, step.to)?;
        // x + (to - from) * (slope + slope_at_end) / 2, where slope = (x - denoised) / from
        // and slope_at_end = (predicted - denoised_at_end) / to.
        let of_slope = (to - from) / 2.0 / from;
        let of_slope_at_end = (to - from) / 2.0 / to;
        let x = tools.combine(&[
            (1.0 + of_slope, &x),
            (-of_slope, &denoised),
            (of_slope_at_end, &predicted),
            (-of_slope_at_end, &denoised_at_end),
        ])?;
        Ok(Stepped { x, denoised })
    }
}

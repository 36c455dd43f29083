//! Euler's method with ancestral noise: each step goes down further than its target and comes back up with fresh noise
//! of the variance that Ho et al. 2020 (DDPM) give the reverse process (eta 1).

use super::{Formula, LatentMath, Stepped, Tools, euler_step};
use crate::schedule::SigmaStep;

pub(super) struct EulerAncestral;

impl<M: LatentMath> Formula<M> for EulerAncestral {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error> {
        let (from, to) = (step.from.sigma, step.to.sigma);
        let denoised = tools.denoise(&x, step.from)?;
        if to == 0.0 {
            let x = euler_step(tools, &x, &denoised, from, to)?;
            return Ok(Stepped { x, denoised });
        }
        // up^2 = to^2 (from^2 - to^2) / from^2, and down^2 = to^2 - up^2, so that down = to^2 / from.
        let up = to * (1.0 - (to / from).powi(2)).sqrt();
        let ratio = (to / from).powi(2);
        let noise = tools.noise(step, &x)?;
        let x = tools.combine(&[(ratio, &x), (1.0 - ratio, &denoised), (up, &noise)])?;
        Ok(Stepped { x, denoised })
    }
}

//! Multistep consistency sampling (Song et al. 2023, algorithm 1; Luo et al. 2023 for latents): take the denoised
//! picture, and noise it again to the next level.

use super::{Formula, LatentMath, Stepped, Tools};
use crate::schedule::SigmaStep;

pub(super) struct Lcm;

impl<M: LatentMath> Formula<M> for Lcm {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error> {
        let denoised = tools.denoise(&x, step.from)?;
        let x = if step.to.sigma > 0.0 {
            let noise = tools.noise(step, &x)?;
            tools.combine(&[(1.0, &denoised), (step.to.sigma, &noise)])?
        } else {
            denoised.clone()
        };
        Ok(Stepped { x, denoised })
    }
}

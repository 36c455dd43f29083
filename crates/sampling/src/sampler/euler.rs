//! Euler's method on the probability flow ODE (Karras et al. 2022, algorithm 2 without its second-order correction and
//! churn; Song et al. 2021).

use super::{Formula, LatentMath, Stepped, Tools, euler_step};
use crate::schedule::SigmaStep;

pub(super) struct Euler;

impl<M: LatentMath> Formula<M> for Euler {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error> {
        let denoised = tools.denoise(&x, step.from)?;
        let x = euler_step(tools, &x, &denoised, step.from.sigma, step.to.sigma)?;
        Ok(Stepped { x, denoised })
    }
}

//! SDE-DPM-Solver++(2M) (Lu et al. 2022, "DPM-Solver++", section 4.3 on the SDE): `dpmpp_2m` with fresh noise.
//!
//! Eta 1, and the midpoint form of the second-order term: ComfyUI's defaults, and diffusers' `sde-dpmsolver++`. The
//! step to sigma 0 takes the denoised picture.

use super::{Formula, LatentMath, Stepped, Tools, dpmpp_2m::extrapolation, euler_step};
use crate::schedule::SigmaStep;

pub(super) struct Dpmpp2mSde<L> {
    /// The last denoised picture and the noise level it was predicted at.
    previous: Option<(L, f64)>,
}

impl<L> Default for Dpmpp2mSde<L> {
    fn default() -> Self {
        Self { previous: None }
    }
}

impl<M: LatentMath> Formula<M> for Dpmpp2mSde<M::Latent> {
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
        // exp(-2h), with h the rise of -ln sigma.
        let decay = (to / from).powi(2);
        let noise = tools.noise(step, &x)?;
        let of_noise = to * (1.0 - decay).sqrt();
        let x = match &self.previous {
            Some((previous_denoised, previous_sigma)) => {
                let extrapolation = extrapolation(*previous_sigma, from, to) / 2.0;
                tools.combine(&[
                    (decay, &x),
                    ((1.0 - decay) * (1.0 + extrapolation), &denoised),
                    ((1.0 - decay) * -extrapolation, previous_denoised),
                    (of_noise, &noise),
                ])?
            }
            None => tools.combine(&[(decay, &x), (1.0 - decay, &denoised), (of_noise, &noise)])?,
        };
        self.previous = Some((denoised.clone(), from));
        Ok(Stepped { x, denoised })
    }
}

//! Deterministic DDIM (Song, Meng, Ermon 2021, equation 12 with sigma_t = 0).
//!
//! In variance-exploding form its step is Euler's (equation 14 of the same paper), so both give the same pictures on the
//! same schedule. It is an entry of its own for its name, and for its rule under schedule `model`.

use super::{Formula, LatentMath, Stepped, Tools, euler::Euler};
use crate::schedule::SigmaStep;

pub(super) struct Ddim;

impl<M: LatentMath> Formula<M> for Ddim {
    fn step(
        &mut self,
        tools: &mut Tools<'_, M>,
        x: M::Latent,
        step: &SigmaStep,
    ) -> Result<Stepped<M::Latent>, M::Error> {
        Euler.step(tools, x, step)
    }
}

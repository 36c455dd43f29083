//! Where a run's noise comes from, and in which order it is drawn.
//!
//! A seed gives the initial noise, and samplers that add noise in each step draw more. Two programs, two orders
//! ([`NoiseRule`]); both draw the whole batch `[batch, channels, height, width]` at once.

mod brownian;
mod seed_sequence;

use crate::noise::{TorchGenerator, nchw_to_nhwc};
use crate::sampler::Sampler;
use crate::schedule::{SigmaSchedule, SigmaSteps};

/// Fresh noise for the samplers that add some in each step.
pub trait NoiseSource {
    /// Standard normal numbers for a step between two noise levels, channels-last, as many as the latent has.
    fn next(&mut self, sigma_from: f64, sigma_to: f64) -> Vec<f32>;
}

/// Whose pictures a seed gives, for samplers that add noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseRule {
    /// ComfyUI's on the CPU: the initial noise comes from a generator with the seed, the sampler's from a second one with
    /// the seed plus 1 (Comfy-Org/ComfyUI pull request 11528; before it, both had the same seed and correlated, issue
    /// 9819). On a GPU ComfyUI draws that noise on the GPU, which nothing here reproduces. `dpmpp_2m_sde` takes its
    /// noise from a Brownian motion of the seed, on the CPU in either case.
    Comfy,
    /// diffusers' with one `generator=torch.Generator().manual_seed(seed)`: the sampler's noise continues the sequence
    /// that the initial noise began.
    Diffusers,
}

impl NoiseRule {
    /// The rule of the program whose sigmas a schedule has: diffusers for `model`, ComfyUI for all others.
    pub fn of(schedule: SigmaSchedule) -> Self {
        if schedule == SigmaSchedule::Model { Self::Diffusers } else { Self::Comfy }
    }
}

/// A seed, and the noise drawn from it so far.
#[derive(Clone, Debug)]
pub struct SeededNoise {
    rule: NoiseRule,
    seed: u64,
    generator: TorchGenerator,
}

impl SeededNoise {
    /// Nothing drawn yet.
    pub fn new(rule: NoiseRule, seed: u64) -> Self {
        Self { rule, seed, generator: TorchGenerator::new(seed) }
    }

    /// Noise outside of the sampler: the initial noise, or before it that of a sampled VAE encoding. In the order of
    /// `[batch, channels, height, width]` as torch draws it, returned channels-last.
    pub fn draw(&mut self, shape: [usize; 4]) -> Vec<f32> {
        draw(&mut self.generator, shape)
    }

    /// The sampler's noise on `steps`, for latents of `[batch, channels, height, width]`, once everything else is drawn.
    pub fn into_sampler_noise(self, sampler: Sampler, steps: &SigmaSteps, shape: [usize; 4]) -> Box<dyn NoiseSource> {
        let generator = match (self.rule, sampler) {
            (NoiseRule::Comfy, Sampler::Dpmpp2mSde) => {
                let positive = || steps.sigmas().into_iter().filter(|&sigma| sigma > 0.0);
                let (min, max) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
                return Box::new(brownian::BrownianNoise::new(self.seed, shape, min, max));
            }
            (NoiseRule::Comfy, _) => TorchGenerator::new(self.seed.wrapping_add(1)),
            (NoiseRule::Diffusers, _) => self.generator,
        };
        Box::new(IndependentNoise { generator, shape })
    }
}

/// Noise that is drawn anew for each step, whatever the noise levels.
#[derive(Clone, Debug)]
struct IndependentNoise {
    generator: TorchGenerator,
    shape: [usize; 4],
}

impl NoiseSource for IndependentNoise {
    fn next(&mut self, _sigma_from: f64, _sigma_to: f64) -> Vec<f32> {
        draw(&mut self.generator, self.shape)
    }
}

fn draw(generator: &mut TorchGenerator, shape: [usize; 4]) -> Vec<f32> {
    nchw_to_nhwc(&generator.randn(shape.iter().product()), shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::noise_config::NoiseConfig;

    const SHAPE: [usize; 4] = [1, 4, 2, 2];

    fn steps() -> SigmaSteps {
        SigmaSchedule::Karras.steps(&NoiseConfig::default(), Sampler::Euler, 5, 1.0).unwrap()
    }

    #[test]
    fn comfy_draws_the_samplers_noise_from_the_next_seed() {
        let mut noise = SeededNoise::new(NoiseRule::Comfy, 7);
        let initial = noise.draw(SHAPE);
        let next = noise.into_sampler_noise(Sampler::EulerAncestral, &steps(), SHAPE).next(1.0, 0.5);
        assert_eq!(initial, SeededNoise::new(NoiseRule::Comfy, 7).draw(SHAPE));
        assert_eq!(next, SeededNoise::new(NoiseRule::Comfy, 8).draw(SHAPE));
    }

    #[test]
    fn diffusers_continues_the_sequence() {
        let mut noise = SeededNoise::new(NoiseRule::Diffusers, 7);
        let initial = noise.draw(SHAPE);
        let mut sampler_noise = noise.into_sampler_noise(Sampler::Dpmpp2mSde, &steps(), SHAPE);
        let mut generator = TorchGenerator::new(7);
        for drawn in [initial, sampler_noise.next(1.0, 0.5), sampler_noise.next(0.5, 0.0)] {
            assert_eq!(drawn, nchw_to_nhwc(&generator.randn(16), SHAPE));
        }
    }
}

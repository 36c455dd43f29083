use std::ops::ControlFlow;

use super::testing::VecMath;
use super::*;
use crate::noise_config::NoiseConfig;
use crate::sampler_noise::{NoiseRule, SeededNoise};
use crate::schedule::SigmaSchedule;

const SHAPE: [usize; 4] = [1, 4, 2, 3];

/// The exact denoiser for pictures whose numbers are normal, with mean `idx / 10` and variance 1.
fn denoise_normal(x: &[f32], level: NoiseLevel) -> Result<Vec<f32>, std::convert::Infallible> {
    let certainty = 1.0 / (1.0 + level.sigma * level.sigma);
    let denoise = |(idx, &value): (usize, &f32)| {
        let mean = idx as f64 / 10.0;
        (mean + certainty * (f64::from(value) - mean)) as f32
    };
    Ok(x.iter().enumerate().map(denoise).collect())
}

fn run(
    sampler: Sampler,
    steps: &SigmaSteps,
    observer: &mut dyn FnMut(&StepReport<'_, Vec<f32>>) -> ControlFlow<()>,
) -> Result<Vec<f32>, SampleError<std::convert::Infallible>> {
    let mut noise = SeededNoise::new(NoiseRule::Comfy, 3);
    let x = VecMath.combine(&[(steps.noise_scale, &noise.draw(SHAPE))]).unwrap();
    let mut noise = noise.into_sampler_noise(sampler, steps, SHAPE);
    sample(
        sampler,
        steps,
        x,
        SamplerParts {
            math: &VecMath,
            denoiser: &mut |x: &Vec<f32>, level| denoise_normal(x, level),
            noise: &mut *noise,
            observer,
        },
    )
}

#[test]
fn every_sampler_finishes_on_every_schedule() {
    let zero_terminal = NoiseConfig { zero_terminal_snr: true, ..NoiseConfig::default() };
    for config in [NoiseConfig::default(), zero_terminal] {
        for sampler in Sampler::ALL {
            for schedule in SigmaSchedule::ALL {
                for count in [1, 2, 3, 20] {
                    let steps = schedule.steps(&config, sampler, count, 1.0).unwrap();
                    let mut reports = Vec::new();
                    let latent = run(sampler, &steps, &mut |report| {
                        assert_eq!((report.step_count, report.denoised.len()), (steps.steps.len(), 24));
                        reports.push((report.step_idx, report.sigma));
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                    let at = format!("{sampler} on {schedule}, {count} steps: {latent:?}");
                    assert!(latent.iter().all(|value| value.is_finite()), "{at}");
                    assert!(reports.into_iter().eq(steps.steps.iter().map(|step| step.to.sigma).enumerate()), "{at}");
                    assert_eq!(latent, run(sampler, &steps, &mut |_| ControlFlow::Continue(())).unwrap(), "{at}");
                }
            }
        }
    }
}

#[test]
fn an_observer_can_cancel_after_any_step() {
    let steps = SigmaSchedule::Karras.steps(&NoiseConfig::default(), Sampler::Euler, 5, 1.0).unwrap();
    for sampler in Sampler::ALL {
        for last_idx in 0..5 {
            let mut seen = 0;
            let outcome = run(sampler, &steps, &mut |report| {
                seen += 1;
                if report.step_idx == last_idx { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(outcome, Err(SampleError::Cancelled { step_idx: last_idx, step_count: 5 }));
            assert_eq!(seen, last_idx + 1);
        }
    }
}

#[test]
fn the_networks_failure_ends_the_run() {
    struct FailingMath;
    impl LatentMath for FailingMath {
        type Latent = ();
        type Error = std::io::Error;
        fn combine(&self, _terms: &[(f64, &())]) -> Result<(), std::io::Error> {
            Ok(())
        }
        fn upload_like(&self, _numbers: &[f32], _like: &()) -> Result<(), std::io::Error> {
            Ok(())
        }
    }
    let steps = SigmaSchedule::Karras.steps(&NoiseConfig::default(), Sampler::Euler, 5, 1.0).unwrap();
    for sampler in Sampler::ALL {
        let mut evaluations_left = 3;
        let mut denoiser = |_: &(), _: NoiseLevel| {
            evaluations_left -= 1;
            if evaluations_left == 0 { Err(std::io::Error::other("no memory")) } else { Ok(()) }
        };
        let mut noise = SeededNoise::new(NoiseRule::Comfy, 0).into_sampler_noise(sampler, &steps, SHAPE);
        let parts = SamplerParts {
            math: &FailingMath,
            denoiser: &mut denoiser,
            noise: &mut *noise,
            observer: &mut |_| ControlFlow::Continue(()),
        };
        let error = sample(sampler, &steps, (), parts).unwrap_err();
        assert_eq!(error.to_string(), "no memory", "{sampler}");
    }
}

#[test]
fn the_network_is_evaluated_once_a_step_and_by_heun_twice() {
    for sampler in Sampler::ALL {
        let steps = SigmaSchedule::Normal.steps(&NoiseConfig::default(), sampler, 4, 1.0).unwrap();
        let mut count = 0;
        let mut denoiser = |x: &Vec<f32>, level: NoiseLevel| {
            count += 1;
            denoise_normal(x, level)
        };
        let mut noise = SeededNoise::new(NoiseRule::Comfy, 0).into_sampler_noise(sampler, &steps, SHAPE);
        let parts = SamplerParts {
            math: &VecMath,
            denoiser: &mut denoiser,
            noise: &mut *noise,
            observer: &mut |_| ControlFlow::Continue(()),
        };
        sample(sampler, &steps, vec![0.0; 24], parts).unwrap();
        // Heun's last step, to sigma 0, has one evaluation.
        let expected = if sampler == Sampler::Heun { 7 } else { 4 };
        assert_eq!(count, expected, "{sampler}");
    }
}

#[test]
fn an_unknown_sampler_lists_the_known_ones() {
    for sampler in Sampler::ALL {
        assert_eq!(sampler.name().parse(), Ok(sampler));
    }
    let error = "unipc".parse::<Sampler>().unwrap_err().to_string();
    let known = "`euler`, `euler_ancestral`, `ddim`, `dpmpp_2m`, `dpmpp_2m_sde`, `heun`, `lcm`";
    assert_eq!(error, format!("unknown sampler `unipc`; known: {known}"));
}

/// The flow of [`denoise_normal`] is known in closed form: `x - mean` is proportional to `sqrt(1 + sigma^2)`. The last
/// step, to sigma 0, is of first order for all; what it should give is known too.
#[test]
fn deterministic_samplers_converge_with_their_order() {
    let error = |sampler: Sampler, count: usize| {
        let steps = SigmaSchedule::Exponential.steps(&NoiseConfig::default(), sampler, count, 1.0).unwrap();
        let (first, last) = (steps.steps[0].from.sigma, steps.steps[count - 1].from.sigma);
        let latent = run(sampler, &steps, &mut |_| ControlFlow::Continue(())).unwrap();
        let noise = SeededNoise::new(NoiseRule::Comfy, 3).draw(SHAPE);
        let exact = |idx: usize| {
            let mean = idx as f64 / 10.0;
            mean + (steps.noise_scale * f64::from(noise[idx]) - mean) / first.hypot(1.0) / last.hypot(1.0)
        };
        let error = |(idx, value): (usize, &f32)| (f64::from(*value) - exact(idx)).abs();
        latent.iter().enumerate().map(error).fold(0.0, f64::max)
    };
    for (sampler, order) in [(Sampler::Euler, 1.0), (Sampler::Ddim, 1.0), (Sampler::Dpmpp2m, 2.0), (Sampler::Heun, 2.0)]
    {
        let (coarse, fine) = (error(sampler, 40), error(sampler, 80));
        let measured_order = (coarse / fine).log2();
        assert!((measured_order - order).abs() < 0.1, "{sampler}: {coarse} to {fine}, order {measured_order}");
    }
}

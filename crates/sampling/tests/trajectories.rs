//! Whole runs: every sampler against its formula (`tools/reference/sampling_goldens.py`), and with schedule `model`
//! against the classes of diffusers 0.42.1 on torch 2.10.0, evaluation by evaluation (`sampling_trajectories.py`).

mod common;

use std::ops::ControlFlow;

use common::{VecMath, entries, numbers};
use plimsoll_sampling::{
    LatentMath, NoiseConfig, NoiseLevel, NoiseRule, NoiseSource, Sampler, SamplerParts, SeededNoise, SigmaSchedule,
    model_input_scale, sample,
};
use plimsoll_testkit::{Golden, assert_close, golden_json, nchw_to_nhwc};
use serde_json::Value;

/// Numbers of order 10 in f32 against f64, over up to 12 steps.
const FORMULA_TOLERANCE: f32 = 5e-5;
/// diffusers computes its tables in f32 (some 1e-6 of a sigma) and its samples too; numbers are of order 1 to 15.
const DIFFUSERS_TOLERANCE: f32 = 1e-4;

/// Under Karras and exponential spacing diffusers finds the timestep by interpolating the logarithms of f32 sigmas, which
/// moves it by up to 0.0015; elsewhere timesteps are equal.
const TIMESTEP_TOLERANCE: f32 = 3e-3;

struct ListedNoise(std::vec::IntoIter<Vec<f32>>);

impl NoiseSource for ListedNoise {
    fn next(&mut self, _sigma_from: f64, _sigma_to: f64) -> Vec<f32> {
        self.0.next().expect("no step draws more than once")
    }
}

fn as_f32(value: &Value) -> Vec<f32> {
    numbers(value).into_iter().map(|number| number as f32).collect()
}

#[test]
fn every_sampler_follows_its_formula() {
    let golden = golden_json("sampling");
    let (mean, spread) =
        (golden["trajectories"]["mu"].as_f64().unwrap(), golden["trajectories"]["s"].as_f64().unwrap());
    let mut denoiser = |x: &Vec<f32>, level: NoiseLevel| {
        let certainty = spread * spread / (spread * spread + level.sigma * level.sigma);
        Ok(x.iter().map(|&value| (mean + certainty * (f64::from(value) - mean)) as f32).collect())
    };
    let mut seen = Vec::new();
    for run in entries(&golden["trajectories"]["runs"]) {
        let sampler: Sampler = run["sampler"].as_str().unwrap().parse().unwrap();
        let schedule: SigmaSchedule = run["schedule"].as_str().unwrap().parse().unwrap();
        let count = run["steps"].as_u64().unwrap() as usize;
        let steps = schedule.steps(&NoiseConfig::default(), sampler, count, 1.0).unwrap();
        let listed = run["noise"].as_array().map(|noise| noise.iter().map(as_f32).collect()).unwrap_or_default();
        let mut noise = ListedNoise(Vec::into_iter(listed));
        let expected: Vec<f32> = as_f32(entries(&run["states"]).last().unwrap());
        let parts = SamplerParts {
            math: &VecMath,
            denoiser: &mut denoiser,
            noise: &mut noise,
            observer: &mut |_| ControlFlow::Continue(()),
        };
        let latent = sample(sampler, &steps, as_f32(&run["x"]), parts).unwrap();
        assert_close(&format!("{sampler} on {schedule}"), &latent, &expected, FORMULA_TOLERANCE);
        seen.push(sampler);
    }
    assert!(Sampler::ALL.iter().all(|sampler| seen.contains(sampler)));
}

/// The stand-in for a network that the script describes.
fn network(input: f64, timestep: f64) -> f64 {
    0.7 * input / (1.0 + input * input).sqrt() + 0.2 * timestep / 1000.0 - 0.1
}

#[test]
fn the_model_schedule_reproduces_diffusers() {
    let golden = Golden::load("sampling_trajectories");
    let descriptions = golden_json("sampling_trajectories");
    let runs = descriptions["runs"].as_object().unwrap();
    assert!(runs.len() > 100);
    for (name, run) in runs {
        let config = NoiseConfig::from_json(&with_class_defaults(run)).unwrap();
        let sampler = match name.starts_with("dpmpp_2m_sde.") {
            true => Sampler::Dpmpp2mSde,
            false => Sampler::of_diffusers_class(run["class"].as_str().unwrap()).unwrap(),
        };
        let (count, strength) = (run["steps"].as_u64().unwrap() as usize, run["strength"].as_f64().unwrap());
        let steps = SigmaSchedule::Model.steps(&config, sampler, count, strength).unwrap();

        let image = golden.f32("image");
        let shape = image.dims::<4>();
        let mut noise = SeededNoise::new(NoiseRule::Diffusers, run["seed"].as_u64().unwrap());
        let initial = noise.draw(shape);
        let x = match run["of_image"].as_bool().unwrap() {
            true => {
                let image = nchw_to_nhwc(&image.values, shape);
                VecMath.combine(&[(1.0, &image), (steps.noise_scale_on_image, &initial)]).unwrap()
            }
            false => VecMath.combine(&[(steps.noise_scale, &initial)]).unwrap(),
        };

        let (mut inputs, mut timesteps) = (Vec::new(), Vec::new());
        let mut denoiser = |x: &Vec<f32>, level: NoiseLevel| {
            let scale = model_input_scale(level.sigma);
            let terms = config.prediction.denoised(level.sigma);
            timesteps.push(level.timestep as f32);
            inputs.extend(x.iter().map(|&value| (f64::from(value) * scale) as f32));
            let denoise = |&value: &f32| {
                let value = f64::from(value);
                (terms.of_x * value + terms.of_output * network(value * scale, level.timestep)) as f32
            };
            Ok(x.iter().map(denoise).collect())
        };
        let parts = SamplerParts {
            math: &VecMath,
            denoiser: &mut denoiser,
            noise: &mut *noise.into_sampler_noise(sampler, &steps, shape),
            observer: &mut |_| ControlFlow::Continue(()),
        };
        let latent = sample(sampler, &steps, x, parts).unwrap();

        let expected_inputs = golden.f32(&format!("{name}.inputs"));
        let [evaluation_count, batch, channels, height, width] = expected_inputs.dims();
        let expected_inputs =
            nchw_to_nhwc(&expected_inputs.values, [evaluation_count * batch, channels, height, width]);
        let expected_final = nchw_to_nhwc(&golden.f32(&format!("{name}.final")).values, shape);
        assert_close(name, &timesteps, &golden.f32(&format!("{name}.timesteps")).values, TIMESTEP_TOLERANCE);
        assert_close(name, &inputs, &expected_inputs, DIFFUSERS_TOLERANCE);
        assert_close(name, &latent, &expected_final, DIFFUSERS_TOLERANCE);
    }
}

/// The run's config as a file: diffusers writes every option, the script names only those that differ from the class's
/// defaults.
fn with_class_defaults(run: &Value) -> String {
    let mut config = run["config"].as_object().unwrap().clone();
    if run["class"] == "HeunDiscreteScheduler" && !config.contains_key("beta_start") {
        config.extend([("beta_start".to_owned(), 0.000_85.into()), ("beta_end".to_owned(), 0.012.into())]);
    }
    Value::from(config).to_string()
}

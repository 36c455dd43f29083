//! Noise tables, schedules and predictions against `tools/reference/sampling_goldens.py` (f64, from the papers, compared
//! there with diffusers 0.42.1 on torch 2.10.0) and against diffusers' own timesteps (`sampling_trajectories.py`).
//!
//! Tolerances are relative. 1e-10 where both sides compute in f64. 2e-5 against diffusers, which computes betas and
//! `1 - beta` in f32: 1000 roundings of up to 3e-8 each in the logarithm of `alpha_bar`.

mod common;

use common::{assert_relatively_close, entries, numbers};
use plimsoll_sampling::{Betas, NoiseConfig, Prediction, Sampler, SigmaSchedule, TimestepSpacing, model_input_scale};
use plimsoll_testkit::golden_json;
use serde_json::Value;

/// Timesteps that are not whole are f32 there: a few roundings of 6e-8.
const TIMESTEP_TOLERANCE: f64 = 1e-6;
/// Those that diffusers interpolates between the logarithms of f32 sigmas (Karras spacing) are off by up to 4e-6.
const INTERPOLATED_TIMESTEP_TOLERANCE: f64 = 1e-5;
const F64_TOLERANCE: f64 = 1e-10;
const DIFFUSERS_TOLERANCE: f64 = 2e-5;
/// A single `1 - beta` of a beta of 1e-4 is off by up to 3e-8 in f32, and the sigma of timestep 0 by half of 3e-8 / 1e-4.
const SMALL_BETA_TOLERANCE: f64 = 1.5e-4;

fn config(entry: &Value) -> NoiseConfig {
    let keys =
        ["beta_schedule", "beta_start", "beta_end", "rescale_betas_zero_snr", "timestep_spacing", "steps_offset"];
    let file: serde_json::Map<String, Value> =
        keys.iter().filter_map(|&key| Some((key.to_owned(), entry.get(key)?.clone()))).collect();
    NoiseConfig::from_json(&Value::from(file).to_string()).unwrap()
}

/// The tables' goldens name the betas; schedules are all on Stable Diffusion's.
fn stable_diffusion() -> NoiseConfig {
    NoiseConfig { betas: Betas::ScaledLinear { start: 0.000_85, end: 0.012 }, ..NoiseConfig::default() }
}

#[test]
fn noise_tables() {
    for entry in entries(&golden_json("sampling")["tables"]) {
        let table = config(entry).table().unwrap();
        let zero_terminal = entry["rescale_betas_zero_snr"].as_bool().unwrap();
        for (timestep, sigma) in entries(&entry["timesteps"]).iter().zip(entries(&entry["sigmas"])) {
            let timestep = timestep.as_u64().unwrap() as usize;
            // The last sigma under zero terminal SNR is infinite in the paper, and large here.
            if zero_terminal && timestep == 999 {
                assert!(table.sigma_max() > 4000.0 && table.sigma_max().is_finite());
                continue;
            }
            // The rescale subtracts nearly equal numbers at the end of the table.
            let tolerance = if zero_terminal { 1e-7 } else { F64_TOLERANCE };
            let name = format!("{} at {timestep}", entry["beta_schedule"]);
            assert_relatively_close(&name, &[table.sigmas()[timestep]], &[sigma.as_f64().unwrap()], tolerance);
        }
    }
}

#[test]
fn comfys_terminal_sigma() {
    let table = NoiseConfig { zero_terminal_snr: true, ..stable_diffusion() }.table().unwrap();
    assert!((table.sigma_max() - 4518.76).abs() < 0.01, "{}", table.sigma_max());
}

#[test]
fn named_schedules() {
    let golden = golden_json("sampling");
    for entry in entries(&golden["schedules"]).iter().chain(entries(&golden["denoise"])) {
        let schedule: SigmaSchedule = entry["schedule"].as_str().unwrap().parse().unwrap();
        let count = entry["steps"].as_u64().unwrap() as usize;
        let strength = entry.get("denoise").map_or(1.0, |denoise| denoise.as_f64().unwrap());
        let steps = schedule.steps(&stable_diffusion(), Sampler::Euler, count, strength).unwrap();
        let name = format!("{schedule}, {count} steps, strength {strength}");
        assert_relatively_close(&name, &steps.sigmas(), &numbers(&entry["sigmas"]), F64_TOLERANCE);
    }
}

#[test]
fn model_schedules_are_diffusers() {
    for entry in entries(&golden_json("sampling")["diffusers_schedules"]) {
        let config = NoiseConfig { betas: stable_diffusion().betas, ..config(entry) };
        let count = entry["steps"].as_u64().unwrap() as usize;
        let name = format!("{} + {}, {count} steps", entry["timestep_spacing"], entry["steps_offset"]);
        let ddim = SigmaSchedule::Model.steps(&config, Sampler::Ddim, count, 1.0).unwrap();
        assert_eq!(ddim.timesteps(), numbers(&entry["ddim_timesteps"]), "{name}");
        let euler = SigmaSchedule::Model.steps(&config, Sampler::Euler, count, 1.0).unwrap();
        assert_relatively_close(&name, &euler.timesteps(), &numbers(&entry["euler_timesteps"]), TIMESTEP_TOLERANCE);
        assert_relatively_close(&name, &euler.sigmas(), &numbers(&entry["euler_sigmas"]), DIFFUSERS_TOLERANCE);
        let noise_scale = entry["euler_init_noise_sigma"].as_f64().unwrap();
        assert_relatively_close(&name, &[euler.noise_scale], &[noise_scale], DIFFUSERS_TOLERANCE);
    }
}

#[test]
fn model_timesteps_are_diffusers_for_many_step_counts() {
    for entry in entries(&golden_json("sampling_trajectories")["spacings"]) {
        let class = entry["class"].as_str().unwrap();
        let spacing = match entry["spacing"].as_str().unwrap() {
            "leading" => TimestepSpacing::Leading,
            "trailing" => TimestepSpacing::Trailing,
            "linspace" => TimestepSpacing::Linspace,
            other => panic!("spacing `{other}`"),
        };
        let config = NoiseConfig { timestep_spacing: Some(spacing), steps_offset: 0, ..stable_diffusion() };
        let count = entry["steps"].as_u64().unwrap() as usize;
        let sampler = Sampler::of_diffusers_class(class).unwrap();
        let steps = SigmaSchedule::Model.steps(&config, sampler, count, 1.0).unwrap();
        let name = format!("{class} {spacing:?}, {count} steps");
        assert_relatively_close(&name, &steps.timesteps(), &numbers(&entry["timesteps"]), TIMESTEP_TOLERANCE);
    }
}

#[test]
fn predictions() {
    for entry in entries(&golden_json("sampling")["predictions"]) {
        let sigma = entry["sigma"].as_f64().unwrap();
        let scale = entry["model_input_scale"].as_f64().unwrap();
        assert_relatively_close("model_input_scale", &[model_input_scale(sigma)], &[scale], F64_TOLERANCE);
        for (prediction, key) in
            [(Prediction::Epsilon, "epsilon"), (Prediction::VPrediction, "v"), (Prediction::Sample, "sample")]
        {
            let terms = prediction.denoised(sigma);
            let pairs = numbers(&entry["x"]).into_iter().zip(numbers(&entry[key]));
            let denoised: Vec<f64> = pairs.map(|(x, output)| terms.of_x * x + terms.of_output * output).collect();
            for (denoised, expected) in denoised.iter().zip(numbers(&entry["x0"])) {
                assert!((denoised - expected).abs() < 1e-12 * sigma.max(1.0), "{prediction:?} at {sigma}");
            }
        }
    }
}

/// The configs of real model folders, with the overrides that the end-to-end goldens were made with.
#[test]
fn model_schedules_of_the_end_to_end_goldens_are_diffusers() {
    for case in entries(&golden_json("e2e")["cases"]) {
        let model = case["model"].as_str().unwrap();
        let parent = if model == "emoji64" { "assets" } else { "fixtures/models" };
        let path = plimsoll_testkit::repository().join(parent).join(model).join("scheduler/scheduler_config.json");
        let mut file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let object = file.as_object_mut().unwrap();
        object.extend(case["overrides"].as_object().unwrap().clone());
        let class = case["scheduler"].as_str().or(object["_class_name"].as_str()).unwrap().to_owned();
        let config = NoiseConfig::from_json(&file.to_string()).unwrap();
        let sampler = Sampler::of_diffusers_class(&class).unwrap();
        assert!(case["scheduler"].is_string() || config.sampler == Some(sampler));

        let count = case["steps"].as_u64().unwrap() as usize;
        let steps = SigmaSchedule::Model.steps(&config, sampler, count, 1.0).unwrap();
        let name = case["name"].as_str().unwrap();
        // That class lists each evaluation: twice every timestep but the first.
        let evaluations =
            |(idx, timestep): (usize, f64)| vec![timestep; if sampler == Sampler::Heun && idx > 0 { 2 } else { 1 }];
        let timesteps: Vec<f64> = steps.timesteps().into_iter().enumerate().flat_map(evaluations).collect();
        assert_relatively_close(name, &timesteps, &numbers(&case["timesteps"]), INTERPOLATED_TIMESTEP_TOLERANCE);
        if !case["sigmas"].is_null() && sampler != Sampler::Heun {
            assert_relatively_close(name, &steps.sigmas(), &numbers(&case["sigmas"]), SMALL_BETA_TOLERANCE);
        }
        let noise_scale = match sampler {
            Sampler::Ddim | Sampler::Lcm | Sampler::Dpmpp2m | Sampler::Dpmpp2mSde => {
                steps.noise_scale * model_input_scale(steps.steps[0].from.sigma)
            }
            Sampler::Euler | Sampler::EulerAncestral | Sampler::Heun => steps.noise_scale,
        };
        let expected_noise_scale = case["init_noise_sigma"].as_f64().unwrap();
        assert_relatively_close(name, &[noise_scale], &[expected_noise_scale], DIFFUSERS_TOLERANCE);
    }
}

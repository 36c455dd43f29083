//! Noise against torch 2.10.0 and torchsde 0.2.6, bit by bit: a seed means the same picture only then. Made by
//! `tools/reference/noise_goldens.py` and `sampling_brownian.py`.

use plimsoll_sampling::{NoiseLevel, NoiseRule, Sampler, SeededNoise, SigmaStep, SigmaSteps, TorchGenerator};
use plimsoll_testkit::{Golden, nchw_to_nhwc};
use serde_json::Value;

/// `{:?}` of floats hides the sign of zero and is long; bits are what must be equal.
fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn single_draws_have_torchs_bits() {
    let golden = Golden::load("noise");
    let mut count = 0;
    for name in golden.names() {
        let ["seed", seed, "size", size] = name.split('.').collect::<Vec<_>>()[..] else { continue };
        let drawn = TorchGenerator::new(seed.parse().unwrap()).randn(size.parse().unwrap());
        assert_eq!(bits(&drawn), bits(&golden.f32(name).values), "{name}");
        count += 1;
    }
    assert!(count >= 100, "only {count} draws were found");
}

#[test]
fn sequences_of_mixed_sizes_have_torchs_bits() {
    let golden = Golden::load("noise");
    for name in ["odd_small", "small_then_large", "large_then_small", "latents", "refill", "fifteen"] {
        let sequence: Value = serde_json::from_str(golden.metadata(&format!("sequence.{name}"))).unwrap();
        let mut generator = TorchGenerator::new(sequence["seed"].as_u64().unwrap());
        for (idx, size) in sequence["sizes"].as_array().unwrap().iter().enumerate() {
            let drawn = generator.randn(size.as_u64().unwrap() as usize);
            let expected = golden.f32(&format!("sequence.{name}.{idx}")).values;
            assert_eq!(bits(&drawn), bits(&expected), "{name}, draw {idx}");
        }
    }
}

#[test]
fn the_generators_output_is_torchs() {
    let golden = Golden::load("noise");
    for seed in [0, 42, u64::MAX] {
        let mut generator = TorchGenerator::new(seed);
        let expected = golden.i32(&format!("seed.{seed}.bits31")).values;
        let drawn: Vec<i32> = expected.iter().map(|_| (generator.next_u32() & 0x7fff_ffff) as i32).collect();
        assert_eq!(drawn, expected, "seed {seed}");
    }
}

#[test]
fn brownian_noise_has_torchsdes_bits() {
    let golden = Golden::load("sampling_brownian");
    let seeds: Value = serde_json::from_str(golden.metadata("seeds")).unwrap();
    for (name, seed) in seeds.as_object().unwrap() {
        let mut levels: Vec<NoiseLevel> = golden
            .f32(&format!("{name}.sigmas"))
            .values
            .iter()
            .map(|&sigma| NoiseLevel { sigma: f64::from(sigma), timestep: 0.0 })
            .collect();
        let expected = golden.f32(&format!("{name}.noise"));
        let [step_count, batch, channels, height, width] = expected.dims();
        let shape = [batch, channels, height, width];
        assert_eq!(step_count, levels.len() - 1);
        levels.push(NoiseLevel { sigma: 0.0, timestep: 0.0 });
        let steps = SigmaSteps {
            steps: levels.windows(2).map(|pair| SigmaStep { from: pair[0], to: pair[1] }).collect(),
            noise_scale: 1.0,
            noise_scale_on_image: 1.0,
            final_scale: 1.0,
        };
        let noise = SeededNoise::new(NoiseRule::Comfy, seed.as_u64().unwrap());
        let mut noise = noise.into_sampler_noise(Sampler::Dpmpp2mSde, &steps, shape);
        let drawn: Vec<f32> =
            steps.steps[..step_count].iter().flat_map(|step| noise.next(step.from.sigma, step.to.sigma)).collect();
        let expected = nchw_to_nhwc(&expected.values, [step_count * batch, channels, height, width]);
        assert_eq!(bits(&drawn), bits(&expected), "{name}");
    }
}

//! Noise against torch, bit by bit (`tools/reference/noise_goldens.py`).

use plimsoll_sampling::TorchGenerator;
use plimsoll_testkit::Golden;
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

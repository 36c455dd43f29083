//! UNets with config values that no model of the fixtures has, against diffusers 0.42.1 on torch 2.10.0
//! (tools/reference/variant_goldens.py). Tolerance as in `goldens.rs`.

mod common;

use common::{Loaded, Weights};
use plimsoll_device::DType;
use plimsoll_models::unet::{Unet, UnetConfig, UnetInput};
use plimsoll_testkit::{Golden, assert_close};

const TOLERANCE: f32 = 2e-4;

fn run(golden: &Golden, variant: &str, weights: Weights) -> Vec<f32> {
    let prefix = format!("{variant}.model.");
    let config = UnetConfig::parse(golden.metadata(&format!("{variant}.config"))).unwrap();
    let loaded = Loaded::new(
        golden.index(),
        DType::F32,
        weights,
        |b| Unet::build(&b.sub(variant).sub("model"), &config),
        |name| !name.starts_with(&prefix),
    );
    let sample = loaded.upload_golden(golden, &format!("{variant}.sample"));
    let context = loaded.upload_golden(golden, &format!("{variant}.encoder_hidden_states"));
    let timesteps = golden.f32(&format!("{variant}.timestep")).values;
    let input = UnetInput { sample: &sample, timesteps: &timesteps, encoder_hidden_states: &context, added: None };
    let out = loaded.model.forward(&loaded.run(), &input).unwrap();
    loaded.download(&out)
}

fn check(variant: &str) {
    let golden = Golden::load("unet_variants");
    let out = run(&golden, variant, Weights::Resident);
    let expected = golden.f32(&format!("{variant}.out")).channels_last();
    assert_close(variant, &out, &expected.values, TOLERANCE);
    assert!(run(&golden, variant, Weights::Streamed(1)) == out, "{variant}, streamed");
}

#[test]
fn depths_per_layer_and_cross_attention_only_in_one_block() {
    check("nested");
}

#[test]
fn kernels_paddings_scale_factor_centered_sample_and_widths() {
    check("shapes");
}

#[test]
fn no_mid_block_and_a_fractional_frequency_shift() {
    check("no_mid");
}

#[test]
fn an_odd_width_of_the_timestep_embedding() {
    check("odd_width");
}

//! UNets with config values that no published model of the fixtures has, against diffusers 0.42.1 on torch 2.10.0
//! (tests/variants/make.py). Tolerance as in `goldens.rs`.

mod common;

use common::{Loaded, Weights};
use plimsoll_device::DType;
use plimsoll_models::unet::{Unet, UnetConfig, UnetInput};
use plimsoll_testkit::{assert_close, nchw_to_nhwc, read_f32};
use plimsoll_weights::{TensorFile, TensorIndex};

const TOLERANCE: f32 = 2e-4;

/// What the golden file has for one variant.
struct Variant {
    name: &'static str,
    file: TensorFile,
    tensors: TensorIndex,
}

impl Variant {
    fn open(name: &'static str) -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/variants/unet_variants.safetensors");
        let file = TensorFile::open(path).unwrap();
        let tensors = TensorIndex::from_file(&file);
        Self { name, file, tensors }
    }

    fn config(&self) -> UnetConfig {
        UnetConfig::parse(&self.file.header().metadata()[&format!("{}.config", self.name)]).unwrap()
    }

    /// Numbers and shape; an image's in channels-last layout.
    fn tensor(&self, name: &str) -> (Vec<f32>, Vec<usize>) {
        let tensor = self.tensors.get(&format!("{}.{name}", self.name)).unwrap();
        let values = read_f32(tensor);
        match *tensor.shape.as_slice() {
            [b, c, h, w] => (nchw_to_nhwc(&values, [b, c, h, w]), vec![b, h, w, c]),
            _ => (values, tensor.shape.clone()),
        }
    }

    fn run(&self, weights: Weights) -> Vec<f32> {
        let prefix = format!("{}.model.", self.name);
        let config = self.config();
        let loaded = Loaded::new(
            &self.tensors,
            DType::F32,
            weights,
            |b| Unet::build(&b.sub(self.name).sub("model"), &config),
            |name| !name.starts_with(&prefix),
        );
        let upload = |name| {
            let (values, shape) = self.tensor(name);
            loaded.upload(&values, &shape)
        };
        let (sample, context) = (upload("sample"), upload("encoder_hidden_states"));
        let timesteps = self.tensor("timestep").0;
        let input = UnetInput { sample: &sample, timesteps: &timesteps, encoder_hidden_states: &context, added: None };
        let out = loaded.model.forward(&loaded.run(), &input).unwrap();
        assert_eq!(out.shape(), self.tensor("out").1);
        loaded.download(&out)
    }
}

fn check(name: &'static str) {
    let variant = Variant::open(name);
    let out = variant.run(Weights::Resident);
    assert_close(name, &out, &variant.tensor("out").0, TOLERANCE);
    assert!(variant.run(Weights::Streamed(1)) == out, "{name}, streamed");
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

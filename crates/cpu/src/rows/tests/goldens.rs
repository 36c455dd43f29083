//! Against torch: `fixtures/goldens/ops.safetensors`, made by `tools/reference/op_goldens.py` in f64 and rounded to
//! f32 once. Tolerances are a few units in the last place of the largest results.

use plimsoll_device::{Activation, GroupNormShape, ResizeShape};
use safetensors::SafeTensors;

use super::super::{
    activate, geglu, group_norm, group_norm_scratch_len, layer_norm, pixel_shuffle, prelu, resize_nearest,
};
use super::isas;
use crate::isa::Isa;
use crate::numbers::{Numbers, NumbersMut};

const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/goldens");

/// A tensor in torch's layout.
struct Tensor {
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

impl Tensor {
    /// `[batch, channels, pixels]` and the numbers as `[batch, pixels, channels]`.
    fn channels_last(&self) -> ([usize; 3], Vec<f32>) {
        let (batch, channels) = (self.shape[0], self.shape[1]);
        let pixels = self.shape[2..].iter().product::<usize>();
        let numbers = (0..batch * pixels * channels).map(|idx| {
            let (image, pixel, channel) = (idx / channels / pixels, idx / channels % pixels, idx % channels);
            self.numbers[(image * channels + channel) * pixels + pixel]
        });
        ([batch, channels, pixels], numbers.collect())
    }

    fn image_size(&self) -> [usize; 2] {
        [self.shape[2], self.shape[3]]
    }
}

/// One golden.
struct Case<'a> {
    name: &'a str,
    parameters: &'a serde_json::Value,
    tensors: &'a SafeTensors<'a>,
}

impl Case<'_> {
    fn tensor(&self, name: &str) -> Tensor {
        let view = self.tensors.tensor(&format!("{}.{name}", self.name)).unwrap();
        assert_eq!(view.dtype(), safetensors::Dtype::F32);
        let numbers = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        Tensor { shape: view.shape().to_vec(), numbers }
    }

    fn number(&self, name: &str) -> f64 {
        self.parameters[name].as_f64().unwrap()
    }

    fn check(&self, isa: Isa, tolerance: f32, found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len(), "{}", self.name);
        for (idx, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(error <= tolerance, "{} under {isa}: [{idx}] is {found}, not {expected}", self.name);
        }
    }
}

/// Calls `test` for every case of `op`, under every instruction set.
fn for_each(op: &str, test: impl Fn(&Case<'_>, Isa)) {
    let bytes = std::fs::read(format!("{GOLDENS}/ops.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(format!("{GOLDENS}/ops.json")).unwrap()).unwrap();
    let mut count = 0;
    for (name, parameters) in index["cases"].as_object().unwrap() {
        if name.split('.').next() == Some(op) {
            count += 1;
            isas().for_each(|isa| test(&Case { name, parameters, tensors: &tensors }, isa));
        }
    }
    assert!(count > 0, "no golden of `{op}`");
}

fn check_group_norm(op: &str, silu: bool) {
    for_each(op, |case, isa| {
        let ([batch, channels, pixels], x) = case.tensor("x").channels_last();
        let (groups, epsilon) = (case.number("groups") as usize, case.number("eps") as f32);
        let shape = GroupNormShape { batch, pixels, channels, groups, epsilon, silu };
        let (scale, shift) = (case.tensor("weight").numbers, case.tensor("bias").numbers);
        let mut scratch = vec![0.0; group_norm_scratch_len(&shape)];
        let mut y = vec![0.0; x.len()];
        group_norm(isa, &shape, Numbers::F32(&x), &scale, &shift, NumbersMut::F32(&mut y), &mut scratch);
        // A mean of 30 at a deviation of 0.1: half a unit in the last place of 30 is 1e-5 deviations.
        let tolerance = if case.name.ends_with("offset") { 3e-5 } else { 2e-6 };
        case.check(isa, tolerance, &y, &case.tensor("out").channels_last().1);
    });
}

#[test]
fn group_norm_is_torchs() {
    check_group_norm("group_norm", false);
    check_group_norm("group_norm_silu", true);
}

#[test]
fn layer_norm_is_torchs() {
    for_each("layer_norm", |case, isa| {
        let x = case.tensor("x");
        let columns = *x.shape.last().unwrap();
        let (rows, epsilon) = (x.numbers.len() / columns, case.number("eps") as f32);
        let (scale, shift) = (case.tensor("weight").numbers, case.tensor("bias").numbers);
        let mut y = vec![0.0; x.numbers.len()];
        let (x, out) = (Numbers::F32(&x.numbers), NumbersMut::F32(&mut y));
        layer_norm(isa, rows, columns, epsilon, x, &scale, &shift, out);
        let tolerance = if case.name.ends_with("offset") { 3e-5 } else { 2e-6 };
        case.check(isa, tolerance, &y, &case.tensor("out").numbers);
    });
}

#[test]
fn activations_are_torchs() {
    for (op, activation) in [
        ("silu", Activation::Silu),
        ("quick_gelu", Activation::QuickGelu),
        ("gelu_erf", Activation::Gelu),
        ("gelu_tanh", Activation::GeluTanh),
    ] {
        for_each(op, |case, isa| {
            let mut y = case.tensor("x").numbers;
            activate(isa, activation, NumbersMut::F32(&mut y));
            case.check(isa, 1e-6, &y, &case.tensor("out").numbers);
        });
    }
}

#[test]
fn geglu_is_torchs() {
    for_each("geglu", |case, isa| {
        let x = case.tensor("x");
        let columns = x.shape.last().unwrap() / 2;
        let mut y = vec![0.0; x.numbers.len() / 2];
        let rows = y.len() / columns;
        geglu(isa, rows, columns, Numbers::F32(&x.numbers), NumbersMut::F32(&mut y));
        case.check(isa, 1e-6, &y, &case.tensor("out").numbers);
    });
}

#[test]
fn prelu_is_torchs() {
    for_each("prelu", |case, isa| {
        let ([batch, channels, pixels], mut y) = case.tensor("x").channels_last();
        prelu(isa, batch * pixels, channels, &case.tensor("weight").numbers, NumbersMut::F32(&mut y));
        // One rounding on either side.
        case.check(isa, 1e-7, &y, &case.tensor("out").channels_last().1);
    });
}

#[test]
fn resizes_are_torchs() {
    for_each("upsample_nearest", |case, isa| {
        let (input, out) = (case.tensor("x"), case.tensor("out"));
        let ([batch, channels, _], x) = input.channels_last();
        let shape = ResizeShape { batch, input: input.image_size(), output: out.image_size(), channels };
        let mut y = vec![0.0; out.numbers.len()];
        resize_nearest(&shape, Numbers::F32(&x), NumbersMut::F32(&mut y));
        case.check(isa, 0.0, &y, &out.channels_last().1);
    });
    for_each("pixel_shuffle", |case, isa| {
        let (input, out) = (case.tensor("x"), case.tensor("out"));
        let ([batch, _, _], x) = input.channels_last();
        let shape = ResizeShape { batch, input: input.image_size(), output: out.image_size(), channels: out.shape[1] };
        let mut y = vec![0.0; out.numbers.len()];
        pixel_shuffle(&shape, Numbers::F32(&x), NumbersMut::F32(&mut y));
        case.check(isa, 0.0, &y, &out.channels_last().1);
    });
}

//! The heavy kernels against torch: `fixtures/goldens/ops.safetensors`, made by `tools/reference/op_goldens.py` in f64
//! and rounded to f32 once. All results are of the order of 1, summed over at most 1,300 terms in f32.

use plimsoll_device::{AttentionShape, ConvShape, DType, MatmulShape};
use safetensors::SafeTensors;

use crate::attention::{attention, attention_scratch_len};
use crate::conv::{conv2d, conv2d_scratch_len};
use crate::gemm::{matmul, matmul_scratch_len};
use crate::isa::Isa;
use crate::naive::{Owned, isas, scratch};
use crate::numbers::{Numbers, NumbersMut};

const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/goldens");

/// A tensor in torch's layout.
struct Tensor {
    shape: Vec<usize>,
    numbers: Vec<f32>,
}

impl Tensor {
    /// Swaps dimensions 1 and 2 of `[a, b, c, d]`, where `d` may be several dimensions.
    fn swapped(&self, [_, b, c, d]: [usize; 4]) -> Vec<f32> {
        let source = |idx: usize| {
            let (inner, outer) = (idx % d, idx / d);
            let (b_idx, c_idx, a_idx) = (outer % b, outer / b % c, outer / b / c);
            ((a_idx * b + b_idx) * c + c_idx) * d + inner
        };
        (0..self.numbers.len()).map(|idx| self.numbers[source(idx)]).collect()
    }

    /// `[batch, channels, height, width]` as `[batch, height, width, channels]`.
    fn channels_last(&self) -> Vec<f32> {
        self.swapped([self.shape[0], self.shape[1], self.shape[2] * self.shape[3], 1])
    }

    /// `[batch, heads, tokens, head_dim]` as `[batch, tokens, heads * head_dim]`.
    fn heads_last(&self) -> Vec<f32> {
        self.swapped([self.shape[0], self.shape[1], self.shape[2], self.shape[3]])
    }
}

/// One golden.
struct Case<'a> {
    name: &'a str,
    parameters: &'a serde_json::Value,
    tensors: &'a SafeTensors<'a>,
}

impl Case<'_> {
    fn optional(&self, name: &str) -> Option<Tensor> {
        let view = self.tensors.tensor(&format!("{}.{name}", self.name)).ok()?;
        assert_eq!(view.dtype(), safetensors::Dtype::F32);
        let numbers = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        Some(Tensor { shape: view.shape().to_vec(), numbers })
    }

    fn tensor(&self, name: &str) -> Tensor {
        self.optional(name).unwrap_or_else(|| panic!("`{}` has no tensor `{name}`", self.name))
    }

    fn size(&self, name: &str) -> usize {
        self.parameters[name].as_u64().unwrap() as usize
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

#[test]
fn matmul_is_torchs_linear() {
    for_each("linear", |case, isa| {
        let (x, weight, bias) = (case.tensor("x"), case.tensor("weight"), case.optional("bias"));
        let (out, depth) = (weight.shape[0], weight.shape[1]);
        let shape = MatmulShape { rows: x.numbers.len() / depth, depth, out };
        let packed = Owned::packed(isa, DType::F32, &weight.numbers, out, depth, 1);
        let mut y = vec![f32::NAN; shape.rows * out];
        let mut scratch = scratch(matmul_scratch_len(isa, 1, &shape, DType::F32));
        let bias = bias.as_ref().map(|bias| &bias.numbers[..]);
        let (x, y_mut) = (Numbers::F32(&x.numbers), NumbersMut::F32(&mut y));
        matmul(isa, 1, &shape, x, packed.numbers(), bias, y_mut, &mut scratch);
        case.check(isa, 4e-6, &y, &case.tensor("out").numbers);
    });
}

#[test]
fn conv2d_is_torchs() {
    for_each("conv2d", |case, isa| {
        let (x, weight, bias) = (case.tensor("x"), case.tensor("weight"), case.optional("bias"));
        let padding = case.parameters["padding_left_right_top_bottom"].as_array().unwrap();
        let [left, right, top, bottom] = [0, 1, 2, 3].map(|side| padding[side].as_u64().unwrap() as usize);
        let size = [x.shape[2], x.shape[3]];
        let shape = ConvShape {
            batch: x.shape[0],
            input: size,
            resized: size,
            in_channels: x.shape[1],
            out_channels: weight.shape[0],
            kernel: [weight.shape[2], weight.shape[3]],
            stride: case.size("stride"),
            dilation: case.size("dilation"),
            padding: [top, bottom, left, right],
        };
        let bias = bias.as_ref().map(|bias| &bias.numbers[..]);
        let y = convolve(isa, &shape, &x, &weight.numbers, bias);
        case.check(isa, 4e-6, &y, &case.tensor("out").channels_last());
    });
}

#[test]
fn a_convolution_that_copies_its_resized_input_is_torchs_nearest_interpolation() {
    for_each("upsample_nearest", |case, isa| {
        let (x, out) = (case.tensor("x"), case.tensor("out"));
        let channels = x.shape[1];
        let shape = ConvShape {
            batch: x.shape[0],
            input: [x.shape[2], x.shape[3]],
            resized: [out.shape[2], out.shape[3]],
            in_channels: channels,
            out_channels: channels,
            kernel: [1, 1],
            stride: 1,
            dilation: 1,
            padding: [0; 4],
        };
        let mut identity = vec![0.0; channels * channels];
        identity.iter_mut().step_by(channels + 1).for_each(|diagonal| *diagonal = 1.0);
        case.check(isa, 4e-6, &convolve(isa, &shape, &x, &identity, None), &out.channels_last());
    });
}

fn convolve(isa: Isa, shape: &ConvShape, x: &Tensor, weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let taps = shape.kernel[0] * shape.kernel[1];
    let packed = Owned::packed(isa, DType::F32, weight, shape.out_channels, shape.in_channels, taps);
    let [height, width] = shape.output().unwrap();
    let mut y = vec![f32::NAN; shape.batch * height * width * shape.out_channels];
    let mut scratch = scratch(conv2d_scratch_len(isa, 1, shape, DType::F32));
    let (x, y_mut) = (x.channels_last(), NumbersMut::F32(&mut y));
    conv2d(isa, 1, shape, Numbers::F32(&x), packed.numbers(), bias, y_mut, &mut scratch);
    y
}

#[test]
fn attention_is_torchs() {
    for_each("attention", |case, isa| {
        let [q, k, v] = ["q", "k", "v"].map(|name| case.tensor(name));
        let shape = AttentionShape {
            batch: q.shape[0],
            heads: case.size("heads"),
            head_dim: case.size("head_dim"),
            q_len: q.shape[2],
            kv_len: k.shape[2],
            causal: case.parameters["causal"].as_bool().unwrap(),
            scale: case.parameters["scale"].as_f64().unwrap() as f32,
        };
        let [q, k, v] = [q, k, v].map(|tensor| tensor.heads_last());
        let mut y = vec![f32::NAN; q.len()];
        let mut scratch = scratch(attention_scratch_len(isa, 1, &shape, DType::F32));
        let (q, k, v) = (Numbers::F32(&q), Numbers::F32(&k), Numbers::F32(&v));
        attention(isa, 1, &shape, q, k, v, NumbersMut::F32(&mut y), &mut scratch);
        // Scores of tens, rounded in f32, are off by some 2e-6; that is the relative error of the weights.
        let tolerance = if case.name.ends_with("sharp") { 2e-5 } else { 4e-6 };
        case.check(isa, tolerance, &y, &case.tensor("out").heads_last());
    });
}

//! The kernels against torch 2.10.0: `fixtures/goldens/ops.safetensors`, made by `tools/reference/op_goldens.py` in f64
//! and rounded to f32 once.
//!
//! All results are of the order of 1. Products that sum up to 1,300 terms in f32 may be 4e-6 off; norms, which sum in
//! short blocks, and functions a few units in the last place of the largest results. What only moves numbers is exact.

use plimsoll_device::{Activation, AttentionShape, ConvShape, DType, GroupNormShape, MatmulShape, ResizeShape};
use plimsoll_testkit::{GoldenTensor, OpCase, OpGoldens, assert_close};

use crate::attention::{attention, attention_scratch_len};
use crate::conv::{conv2d, conv2d_scratch_len};
use crate::gemm::{matmul, matmul_scratch_len};
use crate::isa::Isa;
use crate::naive::{Owned, isas, scratch};
use crate::numbers::{Numbers, NumbersMut};
use crate::rows::{
    activate, geglu, group_norm, group_norm_scratch_len, layer_norm, pixel_shuffle, prelu, resize_nearest,
};

type Tensor = GoldenTensor<f32>;

/// Calls `test` for every case of `op`, under every instruction set.
fn for_each(op: &str, test: impl Fn(&OpCase<'_>, Isa)) {
    for case in OpGoldens::load().cases(op) {
        isas().for_each(|isa| test(&case, isa));
    }
}

#[track_caller]
fn check(case: &OpCase<'_>, isa: Isa, tolerance: f32, found: &[f32], expected: &[f32]) {
    assert_close(&format!("{} under {isa}", case.name()), found, expected, tolerance);
}

/// `[batch, heads, tokens, head_dim]` as `[batch, tokens, heads * head_dim]`.
fn heads_last(tensor: &Tensor) -> Vec<f32> {
    let [batch, heads, tokens, head_dim] = tensor.dims();
    let row = |image: usize, token: usize, head: usize| {
        &tensor.values[((image * heads + head) * tokens + token) * head_dim..][..head_dim]
    };
    let places = (0..batch).flat_map(|image| (0..tokens).map(move |token| (image, token)));
    places.flat_map(|(image, token)| (0..heads).flat_map(move |head| row(image, token, head).to_vec())).collect()
}

#[test]
fn matmul_is_torchs_linear() {
    for_each("linear", |case, isa| {
        let (x, weight, bias) = (case.tensor("x"), case.tensor("weight"), case.optional_tensor("bias"));
        let (out, depth) = (weight.shape[0], weight.shape[1]);
        let shape = MatmulShape { rows: x.values.len() / depth, depth, out };
        let packed = Owned::packed(isa, DType::F32, &weight.values, out, depth, 1);
        let mut y = vec![f32::NAN; shape.rows * out];
        let mut scratch = scratch(matmul_scratch_len(isa, 1, &shape, DType::F32));
        let bias = bias.as_ref().map(|bias| &bias.values[..]);
        let (x, y_mut) = (Numbers::F32(&x.values), NumbersMut::F32(&mut y));
        matmul(isa, 1, &shape, x, packed.numbers(), bias, y_mut, &mut scratch);
        check(case, isa, 4e-6, &y, &case.tensor("out").values);
    });
}

#[test]
fn conv2d_is_torchs() {
    for_each("conv2d", |case, isa| {
        let (x, weight, bias) = (case.tensor("x"), case.tensor("weight"), case.optional_tensor("bias"));
        let padding = case.parameter("padding_left_right_top_bottom").as_array().unwrap();
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
        let bias = bias.as_ref().map(|bias| &bias.values[..]);
        let y = convolve(isa, &shape, x, &weight.values, bias);
        check(case, isa, 4e-6, &y, &case.tensor("out").channels_last().values);
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
        check(case, isa, 4e-6, &convolve(isa, &shape, x, &identity, None), &out.channels_last().values);
    });
}

fn convolve(isa: Isa, shape: &ConvShape, x: Tensor, weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let taps = shape.kernel[0] * shape.kernel[1];
    let packed = Owned::packed(isa, DType::F32, weight, shape.out_channels, shape.in_channels, taps);
    let [height, width] = shape.output().unwrap();
    let mut y = vec![f32::NAN; shape.batch * height * width * shape.out_channels];
    let mut scratch = scratch(conv2d_scratch_len(isa, 1, shape, DType::F32));
    let (x, y_mut) = (x.channels_last().values, NumbersMut::F32(&mut y));
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
            causal: case.parameter("causal").as_bool().unwrap(),
            scale: case.number("scale") as f32,
        };
        let [q, k, v] = [&q, &k, &v].map(heads_last);
        let mut y = vec![f32::NAN; q.len()];
        let mut scratch = scratch(attention_scratch_len(isa, 1, &shape));
        let (q, k, v) = (Numbers::F32(&q), Numbers::F32(&k), Numbers::F32(&v));
        attention(isa, 1, &shape, q, k, v, NumbersMut::F32(&mut y), &mut scratch);
        // Scores of tens, rounded in f32, are off by some 2e-6; that is the relative error of the weights.
        let tolerance = if case.name().ends_with("sharp") { 2e-5 } else { 4e-6 };
        check(case, isa, tolerance, &y, &heads_last(&case.tensor("out")));
    });
}

fn check_group_norm(op: &str, silu: bool) {
    for_each(op, |case, isa| {
        let Tensor { values: x, shape } = case.tensor("x").channels_last();
        let (batch, pixels, channels) = (shape[0], shape[1] * shape[2], shape[3]);
        let (groups, epsilon) = (case.size("groups"), case.number("eps") as f32);
        let shape = GroupNormShape { batch, pixels, channels, groups, epsilon, silu };
        let (scale, shift) = (case.tensor("weight").values, case.tensor("bias").values);
        let mut scratch = vec![0.0; group_norm_scratch_len(&shape)];
        let mut y = vec![0.0; x.len()];
        group_norm(isa, &shape, Numbers::F32(&x), &scale, &shift, NumbersMut::F32(&mut y), &mut scratch);
        // A mean of 30 at a deviation of 0.1: half a unit in the last place of 30 is 1e-5 deviations.
        let tolerance = if case.name().ends_with("offset") { 3e-5 } else { 2e-6 };
        check(case, isa, tolerance, &y, &case.tensor("out").channels_last().values);
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
        let (rows, epsilon) = (x.values.len() / columns, case.number("eps") as f32);
        let (scale, shift) = (case.tensor("weight").values, case.tensor("bias").values);
        let mut y = vec![0.0; x.values.len()];
        let (x, out) = (Numbers::F32(&x.values), NumbersMut::F32(&mut y));
        layer_norm(isa, rows, columns, epsilon, x, &scale, &shift, out);
        let tolerance = if case.name().ends_with("offset") { 3e-5 } else { 2e-6 };
        check(case, isa, tolerance, &y, &case.tensor("out").values);
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
            let mut y = case.tensor("x").values;
            activate(isa, activation, NumbersMut::F32(&mut y));
            check(case, isa, 1e-6, &y, &case.tensor("out").values);
        });
    }
}

#[test]
fn geglu_is_torchs() {
    for_each("geglu", |case, isa| {
        let x = case.tensor("x");
        let columns = x.shape.last().unwrap() / 2;
        let mut y = vec![0.0; x.values.len() / 2];
        let rows = y.len() / columns;
        geglu(isa, rows, columns, Numbers::F32(&x.values), NumbersMut::F32(&mut y));
        check(case, isa, 1e-6, &y, &case.tensor("out").values);
    });
}

#[test]
fn prelu_is_torchs() {
    for_each("prelu", |case, isa| {
        let Tensor { values: mut y, shape } = case.tensor("x").channels_last();
        prelu(isa, shape[..3].iter().product(), shape[3], &case.tensor("weight").values, NumbersMut::F32(&mut y));
        // One rounding on either side.
        check(case, isa, 1e-7, &y, &case.tensor("out").channels_last().values);
    });
}

#[test]
fn resizes_are_torchs() {
    for (op, resize) in [
        ("upsample_nearest", resize_nearest as fn(&ResizeShape, Numbers<'_>, NumbersMut<'_>)),
        ("pixel_shuffle", pixel_shuffle),
    ] {
        for_each(op, |case, isa| {
            let (input, out) = (case.tensor("x").channels_last(), case.tensor("out").channels_last());
            let ([batch, height, width, _], [_, out_height, out_width, channels]) = (input.dims(), out.dims());
            let shape = ResizeShape { batch, input: [height, width], output: [out_height, out_width], channels };
            let mut y = vec![0.0; out.values.len()];
            resize(&shape, Numbers::F32(&input.values), NumbersMut::F32(&mut y));
            check(case, isa, 0.0, &y, &out.values);
        });
    }
}

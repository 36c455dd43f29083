"""Makes fixtures/goldens/ops.safetensors and ops.json: single operations of torch.nn.functional, in f32.

Tensors are named `OP.CASE.TENSOR` (inputs by their role, results `out`), in torch's layout: images [n, c, h, w], tokens
[n, tokens, c], attention [n, heads, tokens, head dim]. ops.json gives each `OP.CASE` its parameters. Sizes are odd on
purpose, so that no vector width divides them. Results are computed in f64 and rounded to f32 once, so that the golden
itself adds no error.
"""

import torch
from torch.nn import functional

from common import GOLDENS, normal, save_json, save_tensors

tensors, parameters = {}, {}


def record(op, case, out, inputs, **options):
    assert f"{op}.{case}" not in parameters
    parameters[f"{op}.{case}"] = options
    for name, value in {**inputs, "out": out.float()}.items():
        tensors[f"{op}.{case}.{name}"] = value


def values(op, case, scale=1.0, **shapes):
    return {name: normal(f"{op}/{case}/{name}", *shape, scale=scale) for name, shape in shapes.items()}


def conv2d(case, kernel, stride=1, padding=(0, 0, 0, 0), dilation=1, batch=1, channels=(5, 7), size=(9, 11), bias=True):
    """`padding` is (left, right, top, bottom), as the VAE's downsampler has it: (0, 1, 0, 1)."""
    inputs = values("conv2d", case, x=(batch, channels[0], *size))
    fan_in = channels[0] * kernel * kernel
    inputs |= values("conv2d", case, scale=fan_in**-0.5, weight=(channels[1], channels[0], kernel, kernel))
    if bias:
        inputs |= values("conv2d", case, bias=(channels[1],))
    out = functional.conv2d(
        functional.pad(inputs["x"], padding).double(), inputs["weight"].double(),
        inputs["bias"].double() if bias else None, stride=stride, dilation=dilation,
    )
    record("conv2d", case, out, inputs, stride=stride, padding_left_right_top_bottom=list(padding), dilation=dilation)


def conv2d_cases():
    for kernel in (1, 3, 5, 7):
        for stride in (1, 2):
            for pad in range(0, kernel // 2 + 1):
                conv2d(f"k{kernel}_s{stride}_p{pad}", kernel, stride, (pad,) * 4)
    conv2d("k3_s1_p2_d2", 3, 1, (2,) * 4, dilation=2)
    conv2d("k3_s1_p0_d2", 3, 1, (0,) * 4, dilation=2)
    conv2d("k3_s2_p3", 3, 2, (3,) * 4)
    conv2d("k3_s2_asymmetric_even", 3, 2, (0, 1, 0, 1), size=(8, 12))
    conv2d("k3_s2_asymmetric_odd", 3, 2, (0, 1, 0, 1), size=(7, 13))
    conv2d("k3_s1_p1_batch_no_bias", 3, 1, (1,) * 4, batch=3, bias=False)
    conv2d("k3_s1_p1_wide", 3, 1, (1,) * 4, channels=(33, 65), size=(6, 5))
    conv2d("k1_s1_p0_wide", 1, channels=(67, 34), size=(5, 7), batch=2)
    conv2d("k3_s1_p1_one_pixel", 3, 1, (1,) * 4, size=(1, 1), channels=(4, 3))
    conv2d("k3_s1_p1_one_channel", 3, 1, (1,) * 4, channels=(1, 1), size=(3, 17))


def linear_cases():
    for case, rows, columns_in, columns_out, bias in [
        ("one_row", (1, 1), 37, 19, True), ("tokens", (2, 77), 24, 40, True), ("no_bias", (2, 13), 65, 129, False),
        ("narrow", (1, 5), 1, 3, True), ("to_one", (3, 7), 100, 1, True), ("long_sum", (1, 3), 1283, 17, True),
    ]:
        inputs = values("linear", case, x=(*rows, columns_in))
        inputs |= values("linear", case, scale=columns_in**-0.5, weight=(columns_out, columns_in))
        if bias:
            inputs |= values("linear", case, bias=(columns_out,))
        out = functional.linear(inputs["x"].double(), inputs["weight"].double(), inputs["bias"].double() if bias else None)
        record("linear", case, out, inputs)


def norm_cases():
    for case, shape, groups, eps in [
        ("g4", (2, 12, 5, 7), 4, 1e-5), ("g1", (1, 6, 3, 5), 1, 1e-6), ("g_is_c", (1, 5, 4, 3), 5, 1e-5),
        ("g3_one_pixel", (2, 9, 1, 1), 3, 1e-6), ("g32", (1, 64, 3, 5), 32, 1e-5), ("g2_offset", (1, 6, 9, 11), 2, 1e-6),
    ]:
        inputs = values("group_norm", case, x=shape, weight=(shape[1],), bias=(shape[1],))
        if case == "g2_offset":
            inputs["x"] = inputs["x"] * 0.1 + 30.0  # a mean far from 0: a one-pass variance in f32 fails here
        out = functional.group_norm(inputs["x"].double(), groups, inputs["weight"].double(), inputs["bias"].double(), eps)
        record("group_norm", case, out, inputs, groups=groups, eps=eps)
        record("group_norm_silu", case, functional.silu(out), inputs, groups=groups, eps=eps)
    for case, shape, eps in [
        ("c24", (2, 77, 24), 1e-5), ("c129", (1, 3, 129), 1e-6), ("c1", (1, 4, 1), 1e-5), ("offset", (1, 5, 40), 1e-5)
    ]:
        inputs = values("layer_norm", case, x=shape, weight=shape[-1:], bias=shape[-1:])
        if case == "offset":
            inputs["x"] = inputs["x"] * 0.1 - 30.0
        out = functional.layer_norm(
            inputs["x"].double(), shape[-1:], inputs["weight"].double(), inputs["bias"].double(), eps
        )
        record("layer_norm", case, out, inputs, eps=eps)


def activation_cases():
    ramp = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([-104.0, -88.5, -1e-4, 0.0, 1e-4, 88.5, 104.0])])
    functions = {
        "gelu_erf": lambda x: functional.gelu(x),
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "silu": lambda x: functional.silu(x),
    }
    for op, function in functions.items():
        record(op, "ramp", function(ramp.double()), {"x": ramp})
        inputs = values(op, "normal", scale=2.0, x=(3, 5, 13))
        record(op, "normal", function(inputs["x"].double()), inputs)
    for case, shape in [("tokens", (2, 13, 38)), ("narrow", (1, 3, 2))]:
        inputs = values("geglu", case, x=shape)
        hidden, gate = inputs["x"].double().chunk(2, dim=-1)
        record("geglu", case, hidden * functional.gelu(gate), inputs)
    for case, shape, scale in [("c77", (2, 3, 77), 1.0), ("c1", (4, 1), 1.0), ("c13_large", (3, 13), 60.0), ("c130", (1, 2, 130), 4.0)]:
        inputs = values("softmax", case, scale=scale, x=shape)
        record("softmax", case, functional.softmax(inputs["x"].double(), dim=-1), inputs)
    for case, shape in [("image", (2, 7, 3, 5)), ("one", (1, 1, 2, 2))]:
        inputs = values("prelu", case, x=shape, weight=(shape[1],))
        record("prelu", case, functional.prelu(inputs["x"].double(), inputs["weight"].double()), inputs)


def attention_cases():
    for head_dim in (4, 8, 40, 64, 80, 160):
        heads = 3 if head_dim < 64 else 1
        for case, queries, keys, causal in [
            ("self", 15, 15, False), ("cross77", 9, 77, False), ("cross1", 5, 1, False), ("cross13", 17, 13, False),
            ("causal", 19, 19, True),
        ]:
            name = f"d{head_dim}_{case}"
            inputs = values(
                "attention", name, q=(2, heads, queries, head_dim), k=(2, heads, keys, head_dim), v=(2, heads, keys, head_dim)
            )
            out = functional.scaled_dot_product_attention(
                *(inputs[part].double() for part in "qkv"), is_causal=causal
            )
            record("attention", name, out, inputs, heads=heads, head_dim=head_dim, causal=causal, scale=head_dim**-0.5)
    name = "d8_sharp"
    inputs = values("attention", name, scale=3.0, q=(1, 2, 33, 8), k=(1, 2, 70, 8), v=(1, 2, 70, 8))
    out = functional.scaled_dot_product_attention(*(inputs[part].double() for part in "qkv"))
    record("attention", name, out, inputs, heads=2, head_dim=8, causal=False, scale=8**-0.5)


def resize_cases():
    for case, shape, size in [
        ("double", (2, 3, 5, 7), (10, 14)), ("quadruple", (1, 3, 3, 5), (12, 20)), ("to_odd", (1, 4, 4, 3), (7, 5)),
        ("to_odd_larger", (1, 2, 3, 6), (5, 11)),
    ]:
        inputs = values("upsample_nearest", case, x=shape)
        record("upsample_nearest", case, functional.interpolate(inputs["x"], size=size, mode="nearest"), inputs, size_height_width=list(size))
    for case, shape, factor in [("r2", (2, 12, 3, 5), 2), ("r4", (1, 48, 2, 3), 4), ("r3", (1, 9, 4, 1), 3)]:
        inputs = values("pixel_shuffle", case, x=shape)
        record("pixel_shuffle", case, functional.pixel_shuffle(inputs["x"], factor), inputs, factor=factor)


def main():
    for make in (conv2d_cases, linear_cases, norm_cases, activation_cases, attention_cases, resize_cases):
        make()
    save_tensors(GOLDENS / "ops.safetensors", tensors, __file__)
    save_json(GOLDENS / "ops.json", {"cases": {name: parameters[name] for name in sorted(parameters)}}, __file__)


if __name__ == "__main__":
    main()

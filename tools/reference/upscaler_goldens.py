"""Makes fixtures/goldens/upscaler.safetensors: images through Real-ESRGAN's SRVGGNetCompact, in f32.

Usage: upscaler_goldens.py [WEIGHTS_FILE]

`CASE.image` [batch, 3, h, w] in 0..1 and `CASE.out` [batch, 3, 4h, 4w], not clamped. The net as published
(xinntao/Real-ESRGAN, realesrgan/archs/srvgg_arch.py): a stack of 3x3 convolutions with PReLU, a last convolution to
3 * 16 channels, pixel shuffle by 4, plus the input upsampled by nearest neighbour.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from common import GOLDENS, REPO, normal, save_tensors

SCALE = 4
CASES = {"odd": (2, 13, 19), "tiny": (1, 1, 3), "square": (1, 16, 16)}


def build(weights):
    """The stack that the names `body.N` describe: convolutions have 4-D weights, PReLUs 1-D ones."""
    body = nn.Sequential()
    for index in range(1 + max(int(name.split(".")[1]) for name in weights)):
        weight = weights[f"body.{index}.weight"]
        if weight.dim() == 4:
            body.append(nn.Conv2d(weight.shape[1], weight.shape[0], 3, 1, 1))
        else:
            body.append(nn.PReLU(num_parameters=len(weight)))
    body.load_state_dict({name.removeprefix("body."): weight.float() for name, weight in weights.items()})
    return body


def upscale(body, image):
    return functional.pixel_shuffle(body(image), SCALE) + functional.interpolate(image, scale_factor=SCALE, mode="nearest")


def main():
    default = REPO / "assets" / "realesr-animevideov3-x4" / "realesr-animevideov3-x4.safetensors"
    body = build(load_file(Path(sys.argv[1]) if len(sys.argv) > 1 else default))
    tensors = {}
    for name, (batch, height, width) in CASES.items():
        coarse = normal(f"upscaler/{name}", batch, 3, (height + 3) // 3, (width + 3) // 3, scale=0.25, shift=0.5)
        image = functional.interpolate(coarse, size=(height, width), mode="bilinear").clamp(0, 1)
        tensors |= {f"{name}.image": image, f"{name}.out": upscale(body, image)}
    save_tensors(GOLDENS / "upscaler.safetensors", tensors, __file__)


if __name__ == "__main__":
    main()

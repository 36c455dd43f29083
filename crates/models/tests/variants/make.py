"""Makes unet_variants.safetensors: tiny UNets with the config values that no published model of fixtures/models has.

Usage: make.py, with the packages of tools/reference (torch 2.10.0, diffusers 0.42.1). Never run by tests.

For each variant: `NAME.model.*` (weights, in f16), `NAME.sample`, `.timestep`, `.encoder_hidden_states`, `.out`; the config is
in the metadata as `NAME.config`.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3] / "tools" / "reference"))

import torch
from common import normal, sort_metadata, versions
from safetensors.torch import save_file

from diffusers import UNet2DConditionModel

COMMON = dict(block_out_channels=[8, 12], norm_num_groups=4, cross_attention_dim=10, attention_head_dim=2)
CROSS = dict(
    down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
)
PLAIN = dict(down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"], up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"])
VARIANTS = {
    "nested": COMMON | CROSS | dict(
        layers_per_block=[1, 2], only_cross_attention=[True, False], cross_attention_dim=[10, 10],
        transformer_layers_per_block=[[2], [1, 2]], reverse_transformer_layers_per_block=[[1, 0, 2], [2, 1]],
        use_linear_projection=True, attention_head_dim=[4, 3],
    ),
    "shapes": COMMON | CROSS | dict(
        layers_per_block=1, center_input_sample=True, downsample_padding=0, mid_block_scale_factor=1.7, conv_in_kernel=5,
        conv_out_kernel=1, time_embedding_dim=20, in_channels=3, out_channels=5, only_cross_attention=True, norm_eps=1e-3,
    ),
    "no_mid": COMMON | PLAIN | dict(layers_per_block=1, mid_block_type=None, flip_sin_to_cos=False, freq_shift=0.5),
    "odd_width": COMMON | PLAIN | dict(layers_per_block=1, block_out_channels=[9, 15], norm_num_groups=3, attention_head_dim=3),
}


def main():
    tensors, configs = {}, {}
    for name, options in VARIANTS.items():
        unet = UNet2DConditionModel(**options).eval()
        for key, parameter in unet.named_parameters():
            shape, fan_in = tuple(parameter.shape), parameter[0].numel()
            scale, shift = (0.3, 0.0) if key.endswith("bias") else (0.25, 1.0) if len(shape) == 1 else (fan_in**-0.5, 0.0)
            parameter.data.copy_(normal(f"{name}/{key}", *shape, scale=scale, shift=shift).half())
        sample = normal(f"{name}/sample", 2, unet.config.in_channels, 7, 6)
        timestep, context = torch.tensor([500.5, 3.0]), normal(f"{name}/context", 2, 5, 10)
        out = unet(sample, timestep, context).sample
        tensors |= {f"{name}.model.{key}": value.half() for key, value in unet.state_dict().items()}
        tensors |= {f"{name}.sample": sample, f"{name}.timestep": timestep, f"{name}.encoder_hidden_states": context}
        tensors[f"{name}.out"] = out
        configs[f"{name}.config"] = json.dumps({key: value for key, value in unet.config.items() if key[0] != "_"})
    path = HERE / "unet_variants.safetensors"
    provenance = {"script": "crates/models/tests/variants/make.py", "versions": versions()}
    ordered = {name: tensors[name].detach().contiguous() for name in sorted(tensors)}
    save_file(ordered, path, metadata=provenance | configs)
    sort_metadata(path)


if __name__ == "__main__":
    main()

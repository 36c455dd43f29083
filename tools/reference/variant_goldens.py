"""Makes fixtures/goldens/unet_variants.safetensors: tiny UNets with config values that no model of fixtures/models has.

For each variant of `VARIANTS`: `NAME.model.*` (weights, in f16), `NAME.sample`, `.timestep`, `.encoder_hidden_states`,
`.out` (computed in f32); the config is in the metadata as `NAME.config`.
"""

import json

import torch
from diffusers import UNet2DConditionModel

from common import GOLDENS, normal, quiet, save_tensors

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
    quiet()
    tensors, configs = {}, {}
    for name, options in VARIANTS.items():
        unet = UNet2DConditionModel(**options).eval()
        for key, parameter in unet.named_parameters():
            shape, fan_in = tuple(parameter.shape), parameter[0].numel()
            scale, shift = (0.3, 0.0) if key.endswith("bias") else (0.25, 1.0) if len(shape) == 1 else (fan_in**-0.5, 0.0)
            parameter.data.copy_(normal(f"{name}/{key}", *shape, scale=scale, shift=shift).half())
        sample = normal(f"{name}/sample", 2, unet.config.in_channels, 7, 6)
        timestep, context = torch.tensor([500.5, 3.0]), normal(f"{name}/context", 2, 5, 10)
        tensors |= {f"{name}.model.{key}": value.half() for key, value in unet.state_dict().items()}
        tensors |= {f"{name}.sample": sample, f"{name}.timestep": timestep, f"{name}.encoder_hidden_states": context}
        tensors[f"{name}.out"] = unet(sample, timestep, context).sample
        configs[f"{name}.config"] = json.dumps({key: value for key, value in unet.config.items() if key[0] != "_"})
    save_tensors(GOLDENS / "unet_variants.safetensors", tensors, __file__, **configs)


if __name__ == "__main__":
    main()

"""Makes fixtures/goldens/MODEL.safetensors: what each module of each model computes, in f32 and torch's layout.

Usage: module_goldens.py [EMOJI64_FOLDER] [MODEL ...]

- `text_encoder.*`, `text_encoder_2.*`: ids, last hidden state (after the final norm), `penultimate` (the hidden state
  before the last layer, no final norm), pooled (at the end token), `text_embeds` (projected, second encoder only)
- `unet.*`: inputs, output and, for finding a fault, the time embedding and the output of every block
- `vae.*`: image in -1..1 to `moments` (mean and log variance stacked on channels); `latent`, unscaled, to `decoded`;
  `vae.odd.*`: the same at a size that no power of two divides
"""

import sys

import torch

from common import GOLDENS, load_pipeline, model_folders, normal, save_tensors

PROMPTS = [
    "red heart",
    "",
    "A photo of TWO cats, 3 dogs & a 'pizza' (slice)!",
    " ".join(["sparkling heart with a blue ribbon and a yellow star"] * 12),
]
# Latent (height, width) of the UNet golden; the last three meet odd sizes on the way down.
LATENT_SIZES = {"sd15": (16, 8), "sd2": (12, 8), "sdxl": (8, 12), "vae4": (11, 7), "groups": (13, 18), "emoji64": (16, 12)}
VAE_LATENT_SIZES = {"sd15": (4, 6), "sd2": (5, 3), "sdxl": (6, 4), "vae4": (9, 12), "groups": (14, 10), "emoji64": (16, 12)}
VAE_ODD_LATENT_SIZES = {"sd15": (3, 5), "sd2": (3, 3), "sdxl": (3, 5), "vae4": (5, 7), "groups": (9, 7), "emoji64": (5, 7)}


def tokens(tokenizer):
    ids = tokenizer(PROMPTS, padding="max_length", max_length=77, truncation=True, return_tensors="pt").input_ids
    assert ids.shape == (len(PROMPTS), 77)
    return ids


def text_goldens(pipeline, part, tokenizer):
    module = getattr(pipeline, part)
    ids = tokens(tokenizer)
    out = module(ids, output_hidden_states=True)
    inner = getattr(module, "text_model", module)
    goldens = {
        f"{part}.input_ids": ids.to(torch.int32),
        f"{part}.last_hidden_state": out.last_hidden_state,
        f"{part}.penultimate": out.hidden_states[-2],
        f"{part}.pooled": inner(ids).pooler_output,
    }
    if hasattr(out, "text_embeds"):
        goldens[f"{part}.text_embeds"] = out.text_embeds
    assert torch.equal(inner.final_layer_norm(out.hidden_states[-1]), out.last_hidden_state)
    return goldens


def first(value):
    return value[0] if isinstance(value, tuple) else value


def unet_goldens(name, pipeline):
    unet = pipeline.unet
    height, width = LATENT_SIZES[name]
    goldens = {
        "unet.sample": normal(f"{name}/sample", 2, unet.config.in_channels, height, width),
        "unet.timestep": torch.tensor([981.0, 37.0]),
        "unet.encoder_hidden_states": normal(f"{name}/context", 2, 77, unet.config.cross_attention_dim),
    }
    conditions = {}
    if unet.config.addition_embed_type == "text_time":
        pooled_dim = pipeline.text_encoder_2.config.projection_dim
        goldens["unet.text_embeds"] = normal(f"{name}/text_embeds", 2, pooled_dim)
        goldens["unet.time_ids"] = torch.tensor([[96.0, 64, 0, 0, 96, 64], [512.0, 768, 16, 8, 64, 128]])
        conditions = {"text_embeds": goldens["unet.text_embeds"], "time_ids": goldens["unet.time_ids"]}

    watched = {"conv_in": unet.conv_in, "mid": unet.mid_block}
    watched |= {f"down.{index}": block for index, block in enumerate(unet.down_blocks)}
    watched |= {f"up.{index}": block for index, block in enumerate(unet.up_blocks)}
    seen = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, key=key: seen.__setitem__(key, first(out).clone()))
        for key, module in watched.items()
    ]
    # The embedding that every resnet gets: taken from the first resnet's projection input, before its own SiLU.
    hooks.append(
        unet.down_blocks[0].resnets[0].register_forward_pre_hook(lambda _, args: seen.__setitem__("temb", args[1].clone()))
    )
    goldens["unet.out"] = unet(
        goldens["unet.sample"], goldens["unet.timestep"], goldens["unet.encoder_hidden_states"],
        added_cond_kwargs=conditions,
    ).sample
    for hook in hooks:
        hook.remove()
    assert set(seen) == set(watched) | {"temb"}
    goldens |= {f"unet.{key}": value for key, value in seen.items()}
    return goldens


def vae_goldens(name, vae, sizes, prefix, batch, odd_pixels):
    factor = 2 ** (len(vae.config.block_out_channels) - 1)
    height, width = sizes[name]
    # Pixels beyond a multiple of the factor are dropped by the strided convolutions, step by step.
    image_height, image_width = height * factor + odd_pixels, width * factor + odd_pixels
    image = normal(f"{name}/{prefix}/image", batch, 3, image_height // 2 + 1, image_width // 2 + 1, scale=0.6)
    image = torch.nn.functional.interpolate(image, size=(image_height, image_width), mode="bilinear").clamp(-1, 1)
    moments = vae.encode(image).latent_dist.parameters
    latent = normal(f"{name}/{prefix}/latent", batch, vae.config.latent_channels, height, width)
    assert moments.shape[2:] == latent.shape[2:], (moments.shape, latent.shape)
    decoded = vae.decode(latent).sample
    return {
        f"{prefix}.image": image, f"{prefix}.moments": moments, f"{prefix}.latent": latent, f"{prefix}.decoded": decoded,
    }


def main():
    arguments = sys.argv[1:]
    wanted = arguments[1:]
    for name, folder in model_folders(arguments):
        if wanted and name not in wanted:
            continue
        pipeline = load_pipeline(folder)
        goldens = text_goldens(pipeline, "text_encoder", pipeline.tokenizer)
        if hasattr(pipeline, "text_encoder_2"):
            goldens |= text_goldens(pipeline, "text_encoder_2", pipeline.tokenizer_2)
        goldens |= unet_goldens(name, pipeline)
        goldens |= vae_goldens(name, pipeline.vae, VAE_LATENT_SIZES, "vae", 2, 0)
        goldens |= vae_goldens(name, pipeline.vae, VAE_ODD_LATENT_SIZES, "vae.odd", 1, 1)
        save_tensors(GOLDENS / f"{name}.safetensors", goldens, __file__, model=name)
        for key in sorted(goldens):
            value = goldens[key].float()
            print(f"    {key:36} {str(list(value.shape)):20} std {value.std():.3f} max {value.abs().max():.2f}")


if __name__ == "__main__":
    main()

"""Makes fixtures/goldens/e2e.json, e2e.safetensors and e2e/*.png: whole pictures drawn by diffusers' pipelines in f32.

Usage: e2e_goldens.py [EMOJI64_FOLDER]

An entry of e2e.json says everything that shaped a picture. `scheduler` is a class of diffusers and `overrides` what
was changed in the folder's own scheduler_config.json (null class: the folder's own). `timesteps` and `sigmas` are what
the scheduler made of it (`sigmas` is null where the scheduler keeps none). e2e.safetensors holds per entry NAME
`NAME.latents`, the final latents, still scaled.

All random numbers come from one torch.Generator("cpu").manual_seed(seed), in this order: text-to-image draws the
latent, then one latent-sized array per stochastic step; image-to-image draws the posterior noise of the VAE encoder
(latent = mean + std * noise), then the start noise, then as above.

The picture is `decode(latents / scaling_factor + shift_factor)`. StableDiffusionPipeline ignores a `shift_factor`;
here it is applied, as the pipelines that know it do. Where it is null the picture equals the pipeline's own (asserted).
"""

import sys

import diffusers
import numpy as np
import torch
from PIL import Image

from common import GOLDENS, load_pipeline, model_folders, quiet, save_json, save_tensors

LONG_PROMPT = " ".join(["sparkling heart with a blue ribbon and a yellow star"] * 12)
KARRAS = {"use_karras_sigmas": True}


def case(name, model, prompt="red heart", **options):
    defaults = dict(
        kind="text_to_image", negative=None, steps=20, guidance=4.0, scheduler=None, overrides={}, seed=1, width=64, height=64,
        strength=None, init_image=None,
    )
    assert set(options) <= set(defaults), options
    return {"name": name, "model": model, "prompt": prompt, **defaults, **options}


def from_image(name, model, prompt="red heart", **options):
    return case(name, model, prompt, kind="image_to_image", **options)


CASES = [
    case("emoji64_ddim_heart", "emoji64"),
    case("emoji64_ddim_heart_guidance_7_5", "emoji64", guidance=7.5, seed=42),
    case("emoji64_ddim_pizza", "emoji64", "pizza", guidance=7.5, seed=2**32 - 1),
    case("emoji64_ddim_no_guidance", "emoji64", guidance=1.0, seed=7, steps=10),
    case("emoji64_ddim_negative_wide", "emoji64", negative="blue", width=96, seed=3, steps=12),
    case("emoji64_ddim_odd_latents", "emoji64", "pizza", width=88, height=56, seed=5, steps=8),
    case("emoji64_ddim_long_prompt", "emoji64", LONG_PROMPT, negative="pizza slice", seed=6, steps=6),
    case("emoji64_ddim_one_step", "emoji64", steps=1),
    case("emoji64_ddim_trailing", "emoji64", overrides={"timestep_spacing": "trailing"}, steps=7),
    case("emoji64_euler", "emoji64", scheduler="EulerDiscreteScheduler"),
    case("emoji64_euler_trailing", "emoji64", "pizza", scheduler="EulerDiscreteScheduler", steps=9,
         overrides={"timestep_spacing": "trailing"}),
    case("emoji64_euler_karras", "emoji64", scheduler="EulerDiscreteScheduler", steps=10, overrides=KARRAS),
    case("emoji64_euler_ancestral", "emoji64", scheduler="EulerAncestralDiscreteScheduler"),
    case("emoji64_dpmpp_2m", "emoji64", scheduler="DPMSolverMultistepScheduler", steps=12),
    case("emoji64_dpmpp_2m_karras", "emoji64", scheduler="DPMSolverMultistepScheduler", steps=20, overrides=KARRAS),
    case("emoji64_dpmpp_2m_sde_karras", "emoji64", scheduler="DPMSolverMultistepScheduler", steps=12,
         overrides={"algorithm_type": "sde-dpmsolver++", **KARRAS}),
    case("emoji64_heun", "emoji64", scheduler="HeunDiscreteScheduler", steps=8),
    case("emoji64_lcm", "emoji64", scheduler="LCMScheduler", steps=4, guidance=4.0),
    from_image("emoji64_img2img", "emoji64", guidance=7.5, strength=0.6, init_image="emoji64_ddim_pizza.png", seed=9),
    from_image("emoji64_img2img_euler_ancestral_wide", "emoji64", "pizza", scheduler="EulerAncestralDiscreteScheduler",
               strength=0.75, steps=12, width=96, init_image="emoji64_ddim_negative_wide.png", seed=2**32 + 5),
    case("sd15_ddim", "sd15", guidance=7.5, steps=8, width=128),
    case("sd15_euler_ancestral", "sd15", "pizza", negative="red", scheduler="EulerAncestralDiscreteScheduler", steps=6,
         width=64, height=128, seed=4),
    case("sd2_ddim_zero_snr", "sd2", negative="blue circle", guidance=7.5, steps=8, width=96),
    case("sd2_ddim_no_guidance", "sd2", "pizza", guidance=1.0, steps=5, height=96, seed=8),
    case("sdxl_euler", "sdxl", guidance=5.0, steps=8, width=96),
    case("sdxl_euler_negative", "sdxl", "pizza", negative="blurry, red!", guidance=5.0, steps=6, height=96, seed=11),
    case("vae4_euler_sample", "vae4", guidance=2.0, steps=8, width=56, height=40),
    case("vae4_dpmpp_2m", "vae4", "pizza", scheduler="DPMSolverMultistepScheduler", guidance=1.0, steps=6, width=40,
         height=72, seed=12),
    case("groups_ddim", "groups", guidance=3.0, steps=8, width=40, height=24),
    from_image("groups_img2img", "groups", "pizza", guidance=3.0, steps=10, strength=0.5, width=40, height=24,
               init_image="groups_ddim.png", seed=13),
]


def run(pipeline, entry, perturbation=0.0):
    """The final latents and the pipeline's own picture. A `perturbation` of the UNet's last bias (and no picture)
    shows how far a small error grows."""
    arguments = dict(
        prompt=entry["prompt"], negative_prompt=entry["negative"], num_inference_steps=entry["steps"],
        guidance_scale=entry["guidance"], generator=torch.Generator("cpu").manual_seed(entry["seed"]),
    )
    if entry["kind"] == "image_to_image":
        picture = Image.open(GOLDENS / "e2e" / entry["init_image"]).convert("RGB")
        assert picture.size == (entry["width"], entry["height"])
        arguments |= {"image": picture, "strength": entry["strength"]}
    else:
        arguments |= {"width": entry["width"], "height": entry["height"]}
    if perturbation:
        bias = pipeline.unet.conv_out.bias.data
        kept = bias.clone()
        bias.mul_(1.0 + perturbation)
        latents = pipeline(**arguments, output_type="latent").images
        bias.copy_(kept)
        return latents, None
    own = pipeline(**arguments, output_type="np").images
    arguments["generator"] = torch.Generator("cpu").manual_seed(entry["seed"])
    return pipeline(**arguments, output_type="latent").images, own


def decode(vae, latents):
    """An 8-bit picture, rounded as diffusers' VaeImageProcessor does."""
    image = vae.decode(latents / vae.config.scaling_factor + (vae.config.shift_factor or 0.0)).sample
    pixels = (image / 2 + 0.5).clamp(0, 1)[0].permute(1, 2, 0).numpy()
    return pixels, (pixels * 255).round().astype(np.uint8)


def main():
    quiet()
    (GOLDENS / "e2e").mkdir(parents=True, exist_ok=True)
    folders = dict(model_folders(sys.argv[1:]))
    entries, tensors, pipelines = [], {}, {}
    for entry in CASES:
        key = (entry["model"], entry["kind"])
        if key not in pipelines:
            pipeline = load_pipeline(folders[entry["model"]], image_to_image=entry["kind"] == "image_to_image")
            pipelines[key] = (pipeline, pipeline.scheduler)
        pipeline, own_scheduler = pipelines[key]
        kind = getattr(diffusers, entry["scheduler"]) if entry["scheduler"] else type(own_scheduler)
        pipeline.scheduler = kind.from_config(own_scheduler.config, **entry["overrides"])

        latents, own_image = run(pipeline, entry)
        pixels, picture = decode(pipeline.vae, latents)
        if pipeline.vae.config.shift_factor is None:
            assert np.abs(pixels - own_image[0]).max() == 0, entry["name"]
        Image.fromarray(picture).save(GOLDENS / "e2e" / f"{entry['name']}.png", optimize=False)

        scheduler = pipeline.scheduler
        sigmas = getattr(scheduler, "sigmas", None)
        entries.append({
            **entry,
            "timesteps": [float(value) for value in scheduler.timesteps],
            "sigmas": None if sigmas is None else [float(value) for value in sigmas],
            "init_noise_sigma": float(scheduler.init_noise_sigma),
            "png": f"e2e/{entry['name']}.png",
        })
        tensors[f"{entry['name']}.latents"] = latents

        disturbed, _ = run(pipeline, entry, perturbation=1e-4)
        other = decode(pipeline.vae, disturbed)[0]
        saturated = ((picture == 0) | (picture == 255)).mean()
        print(
            f"{entry['name']:40} latents std {latents.std():7.3f}, picture std {picture.std():5.1f}, saturated "
            f"{saturated:.2f}; 1e-4 of conv_out's bias moves latents {(disturbed - latents).abs().max():.1e}, "
            f"pixels {np.abs(other - pixels).max() * 255:.3f}/255", flush=True,
        )
    save_tensors(GOLDENS / "e2e.safetensors", tensors, __file__)
    save_json(GOLDENS / "e2e.json", {"cases": entries}, __file__)


if __name__ == "__main__":
    main()

"""Makes fixtures/goldens/sampling_trajectories.{safetensors,json}: whole runs of diffusers' scheduler classes.

A run feeds a stand-in for the network, `output(input, timestep) = 0.7 * u / sqrt(1 + u^2) + 0.2 * timestep / 1000 - 0.1`
with `u` the scaled input, so that a wrong input or a wrong timestep shows at once. For run R:

- `R.inputs` `[evaluations, 1, 4, 2, 2]`: the scaled input of each evaluation
- `R.timesteps` `[evaluations]`: the timestep of each evaluation
- `R.final` `[1, 4, 2, 2]`: the latent that the run ends with
- in the JSON under `runs.R`: class, config, steps, strength, seed

Noise comes from one `torch.Generator().manual_seed(seed)`: first the initial noise, then whatever the class draws. With a
strength below 1 the run begins as diffusers' image-to-image pipelines do, from the latent `image` noised to the first
timestep that is kept. `spacings` in the JSON lists timesteps alone for many step counts.
"""

import json

import numpy as np
import torch

from common import GOLDENS, normal, quiet, save_json, save_tensors

SHAPE = (1, 4, 2, 2)
SEED = 11
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
SPACINGS = ["leading", "trailing", "linspace"]


def network(u, timestep):
    return 0.7 * u / torch.sqrt(1 + u * u) + (0.2 * float(timestep) / 1000 - 0.1)


def cases():
    """(name, class, config, steps, strength)"""
    for spacing in SPACINGS:
        offset = 1 if spacing == "leading" else 0
        base = {**SD, "timestep_spacing": spacing, "steps_offset": offset}
        for prediction in ["epsilon", "v_prediction", "sample"]:
            predicted = {**base, "prediction_type": prediction}
            for one in [False, True]:
                config = {**predicted, "set_alpha_to_one": one, "clip_sample": False}
                yield f"ddim.{spacing}.{prediction}.{one}", "DDIMScheduler", config, 7, 1.0
            yield f"euler.{spacing}.{prediction}", "EulerDiscreteScheduler", predicted, 6, 1.0
            yield f"heun.{spacing}.{prediction}", "HeunDiscreteScheduler", predicted, 5, 1.0
            yield f"dpmpp_2m.{spacing}.{prediction}", "DPMSolverMultistepScheduler", predicted, 8, 1.0
            if prediction != "sample":
                yield f"euler_ancestral.{spacing}.{prediction}", "EulerAncestralDiscreteScheduler", predicted, 6, 1.0
        sde = {**base, "algorithm_type": "sde-dpmsolver++"}
        yield f"dpmpp_2m_sde.{spacing}", "DPMSolverMultistepScheduler", sde, 8, 1.0
    leading = {**SD, "timestep_spacing": "leading", "steps_offset": 1}
    for steps in [1, 2, 3, 20, 30]:
        yield f"ddim.steps.{steps}", "DDIMScheduler", {**leading, "set_alpha_to_one": False, "clip_sample": False}, steps, 1.0
        yield f"euler.steps.{steps}", "EulerDiscreteScheduler", leading, steps, 1.0
        yield f"euler_ancestral.steps.{steps}", "EulerAncestralDiscreteScheduler", leading, steps, 1.0
        yield f"heun.steps.{steps}", "HeunDiscreteScheduler", leading, steps, 1.0
        yield f"dpmpp_2m.steps.{steps}", "DPMSolverMultistepScheduler", leading, steps, 1.0
    for steps in [1, 4, 8]:
        yield f"lcm.steps.{steps}", "LCMScheduler", {**SD, "prediction_type": "v_prediction"}, steps, 1.0
    for kind in ["karras", "exponential"]:
        spaced = {**SD, f"use_{kind}_sigmas": True}
        # With exponential sigmas this class cuts timestep 998.9999.. or 999 down to a whole one, as rounding has it.
        if kind == "karras":
            yield f"dpmpp_2m.{kind}", "DPMSolverMultistepScheduler", spaced, 12, 1.0
        yield f"euler.{kind}", "EulerDiscreteScheduler", spaced, 6, 1.0
        yield f"heun.{kind}", "HeunDiscreteScheduler", spaced, 6, 1.0
    zero = {**SD, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}
    for alias, name in [("ddim", "DDIMScheduler"), ("euler", "EulerDiscreteScheduler")]:
        config = {**zero, "clip_sample": False} if alias == "ddim" else zero
        yield f"{alias}.zero_terminal_snr", name, config, 6, 1.0
    yield "euler_ancestral.zero_terminal_snr", "EulerAncestralDiscreteScheduler", zero, 6, 1.0
    yield "dpmpp_2m.zero_terminal_snr", "DPMSolverMultistepScheduler", zero, 6, 1.0
    cosine = {"beta_schedule": "squaredcos_cap_v2", "prediction_type": "v_prediction", "clip_sample": False}
    yield "ddim.cosine", "DDIMScheduler", cosine, 6, 1.0
    yield "ddim.linear", "DDIMScheduler", {"beta_schedule": "linear", "clip_sample": False}, 6, 1.0
    trained = [float(beta) for beta in np.linspace(0.0005, 0.03, 200)]
    yield "ddim.trained", "DDIMScheduler", {"trained_betas": trained, "num_train_timesteps": 200, "clip_sample": False}, 6, 1.0
    minimum = {**SD, "final_sigmas_type": "sigma_min"}
    yield "euler.sigma_min", "EulerDiscreteScheduler", {**minimum, "timestep_spacing": "leading", "steps_offset": 1}, 5, 1.0
    yield "dpmpp_2m.sigma_min", "DPMSolverMultistepScheduler", minimum, 16, 1.0
    for strength in [0.3, 0.75, 1.0]:
        yield f"ddim.strength.{strength}", "DDIMScheduler", {**leading, "set_alpha_to_one": False, "clip_sample": False}, 10, strength
        yield f"euler.strength.{strength}", "EulerDiscreteScheduler", leading, 10, strength
        yield f"heun.strength.{strength}", "HeunDiscreteScheduler", leading, 10, strength
        yield f"euler_ancestral.strength.{strength}", "EulerAncestralDiscreteScheduler", leading, 10, strength
        yield f"dpmpp_2m.strength.{strength}", "DPMSolverMultistepScheduler", {**SD, "use_karras_sigmas": True}, 10, strength


def run(name, class_name, config, steps, strength, image):
    import diffusers

    scheduler = getattr(diffusers, class_name)(**config)
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(SEED)
    noise = torch.randn(SHAPE, generator=generator)
    timesteps = scheduler.timesteps
    if "strength" in name:
        skipped = steps - min(int(steps * strength), steps)
        timesteps = timesteps[skipped * scheduler.order :]
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(skipped * scheduler.order)
        sample = scheduler.add_noise(image, noise, timesteps[:1])
    else:
        sample = noise * scheduler.init_noise_sigma
    takes_generator = "Heun" not in class_name
    inputs = []
    for timestep in timesteps:
        u = scheduler.scale_model_input(sample, timestep)
        inputs.append(u)
        extra = {"generator": generator} if takes_generator else {}
        sample = scheduler.step(network(u, timestep), timestep, sample, **extra).prev_sample
    return torch.stack(inputs), timesteps.to(torch.float32), sample.to(torch.float32)


def spacing_lists():
    """Timesteps of classes for many step counts, without a run."""
    import diffusers

    lists = []
    names = ["DDIMScheduler", "EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "LCMScheduler"]
    for name in names:
        for spacing in SPACINGS[: 1 if name == "LCMScheduler" else 3]:
            for steps in [1, 2, 3, 4, 7, 9, 11, 13, 16, 17, 25, 28, 30, 33, 40, 48, 50, 64, 100, 333]:
                if name == "LCMScheduler" and steps > 50:
                    continue
                scheduler = getattr(diffusers, name)(**SD, timestep_spacing=spacing)
                scheduler.set_timesteps(steps)
                timesteps = [float(timestep) for timestep in scheduler.timesteps]
                lists.append({"class": name, "spacing": spacing, "steps": steps, "timesteps": timesteps})
    return lists


def main():
    quiet()
    image = normal("sampling_trajectories.image", *SHAPE)
    tensors, runs = {"image": image}, {}
    for name, class_name, config, steps, strength in cases():
        inputs, timesteps, final = run(name, class_name, config, steps, strength, image)
        tensors |= {f"{name}.inputs": inputs, f"{name}.timesteps": timesteps, f"{name}.final": final}
        of_image = "strength" in name
        runs[name] = {"class": class_name, "config": config, "steps": steps, "strength": strength, "of_image": of_image, "seed": SEED}
    save_tensors(GOLDENS / "sampling_trajectories.safetensors", tensors, __file__)
    save_json(GOLDENS / "sampling_trajectories.json", {"runs": runs, "spacings": spacing_lists()}, __file__, indent=None)


if __name__ == "__main__":
    main()

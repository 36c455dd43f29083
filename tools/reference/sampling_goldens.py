"""Makes fixtures/goldens/sampling.json: noise tables, sigma schedules and whole sampler trajectories, in f64.

- `tables`: `alphas_cumprod` and sigma = sqrt((1 - a) / a) at some timesteps, computed in f64 and as diffusers has them in
  f32; plain and with the zero-terminal-SNR rescale of Lin et al. 2023, algorithm 1
- `schedules`: sigmas by name on SD's scaled_linear table (1000 timesteps); `denoise` the tails of longer schedules
- `diffusers_schedules`: what `set_timesteps` gives for DDIM and Euler with every spacing and offset
- `predictions`: x0 from epsilon, v and sample predictions in the variance-exploding space x = x0 + sigma * noise
- `trajectories`: every sampler, run with the exact denoiser of data ~ N(mu, s^2):
  x0(x, sigma) = mu + s^2 / (s^2 + sigma^2) * (x - mu); `states[i]` is x after step i

Formulas, written from the papers: Karras et al. 2022 (eq. 5 schedule, algorithm 1 without churn = heun), Song et al. 2021
(DDIM, eq. 12 with eta 0), Lu et al. 2022 (DPM-Solver++ 2M and SDE 2M, midpoint), Luo et al. 2023 (LCM), ancestral step of
Ho et al. 2020 in sigma form. Each is compared here with diffusers' own scheduler; where definitions differ it is said
in `check_*`.
"""

import math

import diffusers
import numpy as np
import torch
from diffusers.schedulers import scheduling_euler_ancestral_discrete, scheduling_lcm

from common import GOLDENS, array_rng, quiet, save_json

TIMESTEPS = [0, 1, 2, 10, 100, 250, 500, 750, 900, 998, 999]
SD = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
TABLES = {
    "scaled_linear": SD,
    "linear": {"beta_schedule": "linear", "beta_start": 0.0001, "beta_end": 0.02},
    "squaredcos_cap_v2": {"beta_schedule": "squaredcos_cap_v2", "beta_start": 0.0001, "beta_end": 0.02},
}


# Tables


def betas(config, count=1000):
    start, end = config["beta_start"], config["beta_end"]
    if config["beta_schedule"] == "linear":
        return np.linspace(start, end, count)
    if config["beta_schedule"] == "scaled_linear":
        return np.linspace(start**0.5, end**0.5, count) ** 2
    bar = np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2) ** 2
    return np.minimum(1 - bar[1:] / bar[:-1], 0.999)


def alphas_cumprod(config, zero_snr=False):
    alphas = np.cumprod(1 - betas(config))
    if zero_snr:
        root = np.sqrt(alphas)
        alphas = ((root - root[-1]) * root[0] / (root[0] - root[-1])) ** 2
    return alphas


def table_goldens():
    goldens = []
    for name, config in TABLES.items():
        for zero_snr in (False, True):
            alphas = alphas_cumprod(config, zero_snr)
            theirs = diffusers.DDIMScheduler(**config, rescale_betas_zero_snr=zero_snr).alphas_cumprod.double().numpy()
            # f32 products of 1000 factors: relative 1e-4 at most. The rescaled cosine table cancels near its end.
            limit = 1e-4 * alphas + 2e-7
            assert (np.abs(alphas - theirs) < limit).all(), (name, zero_snr, np.abs(alphas - theirs).max())
            with np.errstate(divide="ignore"):
                sigmas = np.sqrt((1 - alphas) / alphas)
            goldens.append({
                **config, "rescale_betas_zero_snr": zero_snr, "timesteps": TIMESTEPS,
                "alphas_cumprod": [float(alphas[t]) for t in TIMESTEPS],
                "sigmas": [float(sigmas[t]) if np.isfinite(sigmas[t]) else None for t in TIMESTEPS],
                "diffusers_alphas_cumprod": [float(theirs[t]) for t in TIMESTEPS],
            })
    return goldens


# Schedules


class Table:
    """The sigmas of SD's table, and sigma as a function of a fractional timestep (linear in log sigma)."""

    def __init__(self, alphas):
        self.sigmas = np.sqrt((1 - alphas) / alphas)

    def sigma(self, timesteps):
        return np.exp(np.interp(timesteps, np.arange(len(self.sigmas)), np.log(self.sigmas)))


def normal(table, steps):
    return table.sigma(np.linspace(len(table.sigmas) - 1, 0, steps))


def sgm_uniform(table, steps):
    return table.sigma(np.linspace(len(table.sigmas) - 1, 0, steps + 1)[:-1])


def karras(table, steps, rho=7.0):
    low, high = table.sigmas[0] ** (1 / rho), table.sigmas[-1] ** (1 / rho)
    return (high + np.linspace(0, 1, steps) * (low - high)) ** rho


def exponential(table, steps):
    return np.exp(np.linspace(np.log(table.sigmas[-1]), np.log(table.sigmas[0]), steps))


def simple(table, steps):
    count = len(table.sigmas)
    return np.array([table.sigmas[count - 1 - int(index * (count / steps))] for index in range(steps)])


def ddim_uniform(table, steps):
    """May have more sigmas than `steps`: 7 steps take every 142nd of 1..999, which are 8."""
    return table.sigmas[1 :: max(len(table.sigmas) // steps, 1)][::-1]


SCHEDULES = {
    "normal": normal, "karras": karras, "simple": simple, "sgm_uniform": sgm_uniform, "ddim_uniform": ddim_uniform,
    "exponential": exponential,
}


def with_zero(sigmas):
    return [float(sigma) for sigma in sigmas] + [0.0]


def schedule_goldens(table):
    schedules = [
        {"schedule": name, "steps": steps, "sigmas": with_zero(make(table, steps))}
        for name, make in SCHEDULES.items()
        for steps in (1, 2, 5, 7, 20)
    ]
    # A partial denoise takes the tail of a schedule with int(steps / denoise) steps.
    tails = [
        {"schedule": name, "steps": steps, "denoise": denoise,
         "sigmas": with_zero(make(table, int(steps / denoise)))[-(steps + 1) :]}
        for name, make in SCHEDULES.items()
        for steps, denoise in ((10, 0.6), (5, 0.25))
    ]
    ends = {"sigma_min": float(table.sigmas[0]), "sigma_max": float(table.sigmas[-1])}
    for make in (karras, exponential):
        scheduler = diffusers.EulerDiscreteScheduler(**SD, **ends, **{f"use_{make.__name__}_sigmas": True})
        scheduler.set_timesteps(20)
        assert np.allclose(scheduler.sigmas.numpy(), with_zero(make(table, 20)), rtol=1e-5)
    return schedules, tails


def diffusers_schedule_goldens():
    goldens = []
    for spacing in ("leading", "trailing", "linspace"):
        for offset in (0, 1):
            for steps in (1, 2, 5, 7, 20):
                options = {**SD, "timestep_spacing": spacing, "steps_offset": offset}
                ddim = diffusers.DDIMScheduler(**options, clip_sample=False)
                ddim.set_timesteps(steps)
                euler = diffusers.EulerDiscreteScheduler(**options)
                euler.set_timesteps(steps)
                goldens.append({
                    "timestep_spacing": spacing, "steps_offset": offset, "steps": steps,
                    "ddim_timesteps": [int(t) for t in ddim.timesteps],
                    "euler_timesteps": [float(t) for t in euler.timesteps],
                    "euler_sigmas": [float(sigma) for sigma in euler.sigmas],
                    "euler_init_noise_sigma": float(euler.init_noise_sigma),
                })
    return goldens


# Predictions


def prediction_goldens():
    goldens = []
    for sigma in (0.03, 0.7, 14.6, 4000.0):
        rng = array_rng(f"prediction/{sigma}")
        x0, noise = rng.standard_normal(4), rng.standard_normal(4)
        x = x0 + sigma * noise
        alpha = 1 / math.sqrt(1 + sigma**2)
        v = alpha * noise - sigma * alpha * x0
        assert np.allclose(alpha * (alpha * x) - sigma * alpha * v, x0)
        goldens.append({
            "sigma": sigma, "x": list(x), "model_input_scale": alpha, "x0": list(x0), "epsilon": list(noise), "v": list(v),
            "sample": list(x0),
        })
    return goldens


# Samplers: `x0(x, sigma)` denoises, `noise[i]` is for step i. Each returns x after every step.


def euler(x0, x, sigmas, noise):
    states = []
    for sigma, after in zip(sigmas, sigmas[1:]):
        x = x + (x - x0(x, sigma)) / sigma * (after - sigma)
        states.append(x)
    return states


def euler_ancestral(x0, x, sigmas, noise):
    states = []
    for index, (sigma, after) in enumerate(zip(sigmas, sigmas[1:])):
        up = math.sqrt(after**2 * (sigma**2 - after**2) / sigma**2)
        down = math.sqrt(after**2 - up**2)
        x = x + (x - x0(x, sigma)) / sigma * (down - sigma) + up * noise[index]
        states.append(x)
    return states


def ddim(x0, x, sigmas, noise):
    """Eq. 12 with eta 0, in the variance-preserving space y = x / sqrt(1 + sigma^2)."""
    states = []
    for sigma, after in zip(sigmas, sigmas[1:]):
        alpha, alpha_after = 1 / (1 + sigma**2), 1 / (1 + after**2)
        y = math.sqrt(alpha) * x
        clean = x0(x, sigma)
        epsilon = (y - math.sqrt(alpha) * clean) / math.sqrt(1 - alpha)
        y = math.sqrt(alpha_after) * clean + math.sqrt(1 - alpha_after) * epsilon
        x = y / math.sqrt(alpha_after)
        states.append(x)
    return states


def dpmpp_2m(x0, x, sigmas, noise):
    """The last step, to sigma 0, is of first order (it returns the denoised value)."""
    states, before, step_before = [], None, None
    for sigma, after in zip(sigmas, sigmas[1:]):
        clean = x0(x, sigma)
        if after == 0:
            x = clean
        else:
            step = math.log(sigma / after)
            corrected = clean
            if before is not None:
                corrected = clean + (clean - before) * step / (2 * step_before)
            x = after / sigma * x + (1 - math.exp(-step)) * corrected
            before, step_before = clean, step
        states.append(x)
    return states


def dpmpp_2m_sde(x0, x, sigmas, noise):
    """Midpoint, eta 1. The last step returns the denoised value and takes no noise."""
    states, before, step_before = [], None, None
    for index, (sigma, after) in enumerate(zip(sigmas, sigmas[1:])):
        clean = x0(x, sigma)
        if after == 0:
            x = clean
        else:
            step = math.log(sigma / after)
            x = after / sigma * math.exp(-step) * x + (1 - math.exp(-2 * step)) * clean
            if before is not None:
                x = x + 0.5 * (1 - math.exp(-2 * step)) * (clean - before) * step / step_before
            x = x + after * math.sqrt(1 - math.exp(-2 * step)) * noise[index]
            before, step_before = clean, step
        states.append(x)
    return states


def heun(x0, x, sigmas, noise):
    """The last step, to sigma 0, is Euler's."""
    states = []
    for sigma, after in zip(sigmas, sigmas[1:]):
        slope = (x - x0(x, sigma)) / sigma
        ahead = x + slope * (after - sigma)
        if after > 0:
            ahead = x + (slope + (ahead - x0(ahead, after)) / after) / 2 * (after - sigma)
        x = ahead
        states.append(x)
    return states


def lcm(x0, x, sigmas, noise):
    states = []
    for index, (sigma, after) in enumerate(zip(sigmas, sigmas[1:])):
        x = x0(x, sigma) + after * noise[index]
        states.append(x)
    return states


SAMPLERS = {
    sampler.__name__: sampler for sampler in (euler, euler_ancestral, ddim, dpmpp_2m, dpmpp_2m_sde, heun, lcm)
}
STOCHASTIC = {"euler_ancestral", "dpmpp_2m_sde", "lcm"}
RUNS = [("karras", 7), ("normal", 5), ("ddim_uniform", 5), ("sgm_uniform", 12), ("simple", 1)]


# Comparison with diffusers. Its schedulers compute in f32 on tensors; x is of order 10, so 2e-4 is rounding.


def close(name, ours, theirs, limit=2e-4):
    difference = max(np.abs(a - np.asarray(b, dtype=np.float64)).max() for a, b in zip(ours, theirs, strict=True))
    print(f"    {name:18} differs from diffusers by {difference:.1e}")
    assert difference < limit, (name, difference)


def as_tensor(values):
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def start(kind, sigmas, **options):
    """A scheduler of diffusers whose sigmas are ours. Timesteps only have to be distinct."""
    scheduler = kind(**SD, **options)
    scheduler.set_timesteps(len(sigmas) - 1)
    scheduler.sigmas = torch.tensor(sigmas, dtype=torch.float32)
    scheduler.timesteps = torch.arange(len(sigmas) - 1, 0, -1, dtype=torch.float32)
    return scheduler


class FixedNoise:
    """Stands in for diffusers' randn_tensor and hands out the given arrays in order."""

    def __init__(self, noise):
        self.noise = iter(noise)

    def __call__(self, shape, **_):
        return as_tensor(next(self.noise))


def check_epsilon(kind, x0, x, sigmas):
    """EulerDiscrete and EulerAncestralDiscrete: one definition with ours, also at the last step."""
    scheduler, states = start(kind, sigmas, prediction_type="epsilon"), []
    for sigma, timestep in zip(sigmas, scheduler.timesteps):
        scheduler.is_scale_input_called = True
        epsilon = as_tensor((x - x0(x, sigma)) / sigma)
        x = scheduler.step(epsilon, timestep, as_tensor(x)).prev_sample.double().numpy()
        states.append(x)
    return states


def check_heun(x0, x, sigmas):
    """HeunDiscrete is called twice a step but for the last: one definition with ours."""
    scheduler = diffusers.HeunDiscreteScheduler(**SD, prediction_type="epsilon")
    scheduler.set_timesteps(len(sigmas) - 1)
    values = torch.tensor(sigmas, dtype=torch.float32)
    scheduler.sigmas = torch.cat([values[:1], values[1:-1].repeat_interleave(2), values[-1:]])
    scheduler.timesteps = torch.arange(2 * len(sigmas) - 3, 0, -1, dtype=torch.float32)
    states = []
    for index, timestep in enumerate(scheduler.timesteps):
        sigma = sigmas[(index + 1) // 2]
        epsilon = as_tensor((x - x0(x, sigma)) / sigma)
        x = scheduler.step(epsilon, timestep, as_tensor(x)).prev_sample.double().numpy()
        if index % 2 == 1 or index == len(scheduler.timesteps) - 1:
            states.append(x)
    return states


def check_dpm(algorithm, x0, x, sigmas, noise):
    """DPMSolverMultistep keeps x in the variance-preserving space. It takes its last step at first order too when
    `final_sigmas_type` is zero (its default); before that it has no first-order steps but the first, like ours."""
    scheduler = start(
        diffusers.DPMSolverMultistepScheduler, sigmas, prediction_type="sample", algorithm_type=algorithm,
        solver_type="midpoint", solver_order=2, final_sigmas_type="zero",
    )
    states, y = [], x / math.sqrt(1 + sigmas[0] ** 2)
    for index, timestep in enumerate(scheduler.timesteps):
        clean = as_tensor(x0(y * math.sqrt(1 + sigmas[index] ** 2), sigmas[index]))
        y = scheduler.step(clean, timestep, as_tensor(y), variance_noise=as_tensor(noise[index])).prev_sample.double().numpy()
        states.append(y * math.sqrt(1 + sigmas[index + 1] ** 2))
    return states


def check_ddim(x0, x, steps):
    """DDIM knows only table entries: on `ddim_uniform` with a divisor of 1000 it makes the same steps, and the last one
    goes to sigma 0 when `set_alpha_to_one` holds (SD's own config says false: it then ends at sigma[0])."""
    scheduler = diffusers.DDIMScheduler(
        **SD, clip_sample=False, set_alpha_to_one=True, timestep_spacing="leading", steps_offset=1,
        prediction_type="sample",
    )
    scheduler.set_timesteps(steps)
    alphas = scheduler.alphas_cumprod.double().numpy()
    states, y = [], x * math.sqrt(alphas[scheduler.timesteps[0]])
    for timestep in scheduler.timesteps:
        sigma = math.sqrt((1 - alphas[timestep]) / alphas[timestep])
        y = scheduler.step(as_tensor(x0(y * math.sqrt(1 + sigma**2), sigma)), timestep, as_tensor(y)).prev_sample.double().numpy()
        after = int(timestep) - 1000 // steps
        states.append(y / math.sqrt(alphas[after]) if after >= 0 else y)
    return states


def check_lcm(x0, x, noise, table):
    """LCM differs from ours by the boundary condition of consistency models: diffusers returns
    c_skip * y + c_out * x0 with c_skip = 0.25 / ((10 t)^2 + 0.25), c_out = 10 t / sqrt((10 t)^2 + 0.25). At t >= 100 that is
    1 - 1e-7 of x0; the comparison uses such timesteps, and a looser limit."""
    timesteps = [999, 759, 499, 259]
    sigmas = [float(table.sigmas[t]) for t in timesteps] + [0.0]
    ours = lcm(x0, x, sigmas, noise)
    scheduler = diffusers.LCMScheduler(**SD, prediction_type="sample", clip_sample=False)
    scheduler.set_timesteps(4)
    assert [int(t) for t in scheduler.timesteps] == timesteps, scheduler.timesteps
    scheduling_lcm.randn_tensor = FixedNoise(noise)
    states, y = [], x / math.sqrt(1 + sigmas[0] ** 2)
    for index, timestep in enumerate(scheduler.timesteps):
        clean = as_tensor(x0(y * math.sqrt(1 + sigmas[index] ** 2), sigmas[index]))
        y = scheduler.step(clean, timestep, as_tensor(y)).prev_sample.double().numpy()
        states.append(y * math.sqrt(1 + sigmas[index + 1] ** 2))
    close("lcm", ours, states, 1e-3)


def trajectory_goldens(table):
    mu, spread = 0.3, 0.5

    def x0(x, sigma):
        return mu + spread**2 / (spread**2 + sigma**2) * (x - mu)

    goldens = []
    for schedule, steps in RUNS:
        sigmas = with_zero(SCHEDULES[schedule](table, steps))
        rng = array_rng(f"trajectory/{schedule}/{steps}")
        x = rng.standard_normal(4) * sigmas[0] + 0.1
        noise = [rng.standard_normal(4) for _ in range(len(sigmas) - 1)]
        runs = {name: sampler(x0, x, sigmas, noise) for name, sampler in SAMPLERS.items()}
        for a, b in zip(runs["euler"], runs["ddim"]):
            assert np.allclose(a, b, rtol=1e-12, atol=1e-12), "Euler on sigma and DDIM with eta 0 are one sampler"

        print(f"{schedule} {steps}")
        close("euler", runs["euler"], check_epsilon(diffusers.EulerDiscreteScheduler, x0, x, sigmas))
        scheduling_euler_ancestral_discrete.randn_tensor = FixedNoise(noise)
        close("euler_ancestral", runs["euler_ancestral"], check_epsilon(diffusers.EulerAncestralDiscreteScheduler, x0, x, sigmas))
        close("heun", runs["heun"], check_heun(x0, x, sigmas))
        close("dpmpp_2m", runs["dpmpp_2m"], check_dpm("dpmsolver++", x0, x, sigmas, noise))
        close("dpmpp_2m_sde", runs["dpmpp_2m_sde"], check_dpm("sde-dpmsolver++", x0, x, sigmas, noise))
        if schedule == "ddim_uniform":
            close("ddim", runs["ddim"], check_ddim(x0, x, steps))
            check_lcm(x0, x, noise, table)

        goldens += [
            {
                "sampler": name, "schedule": schedule, "steps": steps, "sigmas": sigmas, "x": list(x),
                "noise": [list(values) for values in noise] if name in STOCHASTIC else None,
                "states": [[float(value) for value in state] for state in states],
            }
            for name, states in runs.items()
        ]
    return {"mu": mu, "s": spread, "runs": goldens}


def main():
    quiet()
    table = Table(alphas_cumprod(SD))
    schedules, tails = schedule_goldens(table)
    save_json(
        GOLDENS / "sampling.json",
        {
            "tables": table_goldens(), "schedules": schedules, "denoise": tails,
            "diffusers_schedules": diffusers_schedule_goldens(), "predictions": prediction_goldens(),
            "trajectories": trajectory_goldens(table),
        },
        __file__, indent=None,
    )


if __name__ == "__main__":
    main()

"""Makes fixtures/goldens/sampling_brownian.safetensors: the noise of torchsde's BrownianTree along a run's sigmas.

For each case of `CASES`: `CASE.sigmas` `[n]`, f32, falling, and `CASE.noise` `[n - 1, 1, 4, 2, 3]`: for each pair of
neighbours the increment of the tree over [low, high], negated (sigma falls), divided by sqrt(high - low), all in f32. The tree
spans the smallest to the largest sigma and has the case's seed as its entropy. Seeds are in the metadata. The root is
correctly rounded (numpy's): torch's own on a CPU with MKL may be off in the last bit, on a GPU it isn't.
"""

import json

import numpy as np
import torch
import torchsde

from common import GOLDENS, save_tensors

SHAPE = (1, 4, 2, 3)
CASES = {
    "karras": (7, 14.614641, 0.0291671, 8),
    "two_words": (2**40 + 3, 14.614641, 0.0291671, 5),
    "largest_seed": (2**64 - 1, 14.614641, 0.0291671, 4),
    "zero": (0, 2.5, 0.1, 4),
    "zero_terminal_snr": (12345, 4518.757, 0.0291671, 5),
}


def karras(high, low, count, rho=7.0):
    return (high ** (1 / rho) + np.linspace(0, 1, count) * (low ** (1 / rho) - high ** (1 / rho))) ** rho


def main():
    tensors, seeds = {}, {}
    for name, (seed, high, low, count) in CASES.items():
        sigmas = torch.from_numpy(karras(high, low, count)).float()
        tree = torchsde.BrownianTree(sigmas[-1], torch.zeros(SHAPE), sigmas[0], entropy=seed)
        noise = []
        for start, end in zip(sigmas, sigmas[1:]):
            noise.append(-tree(end, start) / float(np.sqrt((start - end).numpy())))
        tensors |= {f"{name}.sigmas": sigmas, f"{name}.noise": torch.stack(noise)}
        seeds[name] = seed
    save_tensors(GOLDENS / "sampling_brownian.safetensors", tensors, __file__, seeds=json.dumps(seeds))


if __name__ == "__main__":
    main()

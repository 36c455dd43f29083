"""Makes fixtures/goldens/noise.safetensors: what torch's CPU generator draws, bit for bit.

- `seed.SEED.size.N`: `torch.randn(N, generator=torch.Generator().manual_seed(SEED))`
- `seed.SEED.bits31`: the low 31 bits of the first 700 raw 32-bit outputs (crossing one refill of the 624-word state)
- `sequence.NAME.I`: the I-th draw from one generator; seed and sizes are in the metadata under `sequence.NAME`

Draws of 16 and more elements and draws of fewer take different paths in torch, and a small draw may leave a spare value in the
generator; the sequences mix both. A 4x16x16 latent is drawn flat: shape never matters, only the element count does.
`rejected_seeds` in the metadata lists seeds that torch refuses.
Only the low 32 bits of a seed count (2^32 draws what 0 draws): the state is seeded from 32 bits.
"""

import json

import torch

from common import GOLDENS, save_tensors

SEEDS = [0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**63, 2**63 - 1, 2**64 - 1]
ALL_SIZES = list(range(1, 41)) + [47, 48, 63, 64, 65, 100, 1000, 4 * 16 * 16]
FEW_SIZES = [1, 2, 15, 16, 17, 33, 100]
SEQUENCES = {
    "odd_small": (7, [1, 1, 1, 2, 3, 1, 5]),
    "small_then_large": (7, [1, 16, 1, 17, 3, 64, 2]),
    "large_then_small": (7, [16, 1, 16, 2, 100, 3, 15, 15]),
    "latents": (42, [1024, 1024, 1536, 8, 7, 1024]),
    "refill": (123, [620, 5, 620, 3, 31, 1]),
    "fifteen": (2**32 - 1, [15, 15, 16, 15, 17]),
}


def draw(generator, size):
    return torch.randn(size, generator=generator, dtype=torch.float32)


def main():
    tensors, rejected, metadata = {}, [], {}
    for seed in SEEDS:
        try:
            torch.Generator().manual_seed(seed)
        except (RuntimeError, ValueError, OverflowError) as error:
            rejected.append(seed)
            print(f"seed {seed}: {error}")
            continue
        for size in ALL_SIZES if seed in (0, 42) else FEW_SIZES:
            tensors[f"seed.{seed}.size.{size}"] = draw(torch.Generator().manual_seed(seed), size)
        if seed in (0, 42, 2**64 - 1):
            bits = torch.empty(700, dtype=torch.int32).random_(generator=torch.Generator().manual_seed(seed))
            tensors[f"seed.{seed}.bits31"] = bits
    for name, (seed, sizes) in SEQUENCES.items():
        generator = torch.Generator().manual_seed(seed)
        for index, size in enumerate(sizes):
            tensors[f"sequence.{name}.{index}"] = draw(generator, size)
        metadata[f"sequence.{name}"] = json.dumps({"seed": seed, "sizes": sizes})
    shaped = torch.randn((2, 4, 8, 3), generator=torch.Generator().manual_seed(42))
    assert torch.equal(shaped.flatten(), draw(torch.Generator().manual_seed(42), shaped.numel()))
    metadata["rejected_seeds"] = json.dumps(rejected)
    save_tensors(GOLDENS / "noise.safetensors", tensors, __file__, **metadata)


if __name__ == "__main__":
    main()

"""Makes fixtures/goldens/residency_sim.json: how long a step takes when part of a model's weights is streamed.

Needs Python alone. A plain model of one link and one device, in f64:

- A model is a list of units, run in order, pass after pass. A unit has `bytes` and `compute_seconds`.
- Some units are streamed: each pass copies their bytes over the link, in order, one at a time. A copy takes
  `latency_seconds` plus bytes over `bytes_per_second`. A streamed unit runs once its copy is there and the unit before
  it is done; any other unit runs once the unit before it is done.
- A copy may be held back further:
  - `ring`: copied bytes stay in a ring of `ring_bytes` until their unit is done. Before a copy starts, the oldest are
    waited for until it fits beside what is left (alone, if it is larger than the ring).
  - `streams` n: the copy of the k-th streamed unit (counted through all passes) waits until the (k - n)-th streamed unit
    is done, and until the device has come to the (k - n + 1)-th, that is, has done all units before it. n = 0: copies
    run on the device's own queue, so a copy waits until the device has come to its own unit.
- `step_seconds` is the time of the sixth pass; `bound_seconds` the larger of all compute and all streamed bytes over
  the link without latency.

`shapes`: sizes and times of layers, as exact f64 (their own formulas are in `flux`, `wan14b` and `audio_video`: FLOPs at
80 TFLOP/s, attention charged to the layer after it). `cases`: a shape, a link, a way of holding back, the places of the
streamed units (chosen by `every`, a comb over the order, `first`, a run from the start, or `largest`), and the times.
Floating point follows the order of operations written here; another order differs by some 1e-15 of the whole.
"""

import json
import platform
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "fixtures" / "goldens" / "residency_sim.json"
FLOPS = 80e12
MIB = 2**20
PASSES = 6


# Shapes


def linear(inputs, outputs, tokens, attention=0.0):
    """Bytes in 16 bits and seconds of a matrix product, with the seconds of the attention before it."""
    return [2 * inputs * outputs, 2 * inputs * outputs * tokens / FLOPS + attention]


def attention(tokens, keys, width):
    return 4 * tokens * keys * width / FLOPS


def flux():
    width, image, text = 3072, 4096, 512
    both = image + text
    double = [
        linear(width, 6 * width, 1),
        linear(width, 6 * width, 1),
        linear(width, 3 * width, image),
        linear(width, 3 * width, text),
        linear(width, width, image, attention(both, both, width)),
        linear(width, 4 * width, image),
        linear(4 * width, width, image),
        linear(width, width, text),
        linear(width, 4 * width, text),
        linear(4 * width, width, text),
    ]
    single = [
        linear(width, 3 * width, 1),
        linear(width, 7 * width, both),
        linear(5 * width, width, both, attention(both, both, width)),
    ]
    return double * 19 + single * 38


def wan14b():
    width, hidden, tokens, text = 5120, 13824, 8400, 512
    block = [
        linear(width, width, tokens),
        linear(width, width, tokens),
        linear(width, width, tokens),
        linear(width, width, tokens, attention(tokens, tokens, width)),
        linear(width, width, tokens),
        linear(width, width, text),
        linear(width, width, text),
        linear(width, width, tokens, attention(tokens, text, width)),
        linear(width, hidden, tokens),
        linear(hidden, width, tokens),
    ]
    return block * 40


def audio_video():
    return ([[100 * MIB, 0.0045]] * 3 + [[66 * MIB, 0.0002]] * 3) * 48


# Which units are streamed


def every(count, stride, offset):
    return [place for place in range(count) if (place + offset) % stride == 0]


def first(count, share):
    return list(range(int(count * share)))


def largest(units, share):
    by_size = sorted(range(len(units)), key=lambda place: (-units[place][0], place))
    return sorted(by_size[: int(len(units) * share)])


# The model


class Ring:
    def __init__(self, capacity):
        self.capacity = capacity
        self.waiting = []

    def opens(self, size, reached):
        moment = 0.0
        while self.waiting and sum(held for held, _ in self.waiting) + size > self.capacity:
            _, done = self.waiting.pop(0)
            moment = max(moment, done)
        return moment

    def visited(self, size, reached, done):
        self.waiting.append((size, done))


class Streams:
    def __init__(self, count):
        self.count = count
        self.visits = []

    def opens(self, size, reached):
        if self.count == 0:
            return reached
        came_to = [visit[0] for visit in self.visits] + [reached]
        ahead = came_to[-self.count] if len(came_to) >= self.count else 0.0
        freed = self.visits[-self.count][1] if len(self.visits) >= self.count else 0.0
        return max(ahead, freed)

    def visited(self, size, reached, done):
        self.visits.append((reached, done))


def step_seconds(units, streamed, gate, rate, latency):
    streamed = set(streamed)
    link_free = device_free = 0.0
    passes_end = []
    for _ in range(PASSES):
        for place, (size, compute) in enumerate(units):
            begins = device_free
            if place in streamed:
                copied = max(link_free, gate.opens(size, device_free)) + (latency + size / rate)
                link_free = copied
                begins = max(begins, copied)
                gate.visited(size, device_free, begins + compute)
            device_free = begins + compute
        passes_end.append(device_free)
    return passes_end[-1] - passes_end[-2]


def bound_seconds(units, streamed, rate):
    return max(sum(compute for _, compute in units), sum(units[place][0] for place in streamed) / rate)


def main():
    shapes = {"flux": flux(), "wan14b": wan14b(), "audio_video": audio_video()}
    cases = []
    for shape, units in shapes.items():
        count = len(units)
        biggest = max(size for size, _ in units)
        chosen = {
            "every 2": every(count, 2, 0),
            "every 3 from 1": every(count, 3, 1),
            "every 7 from 3": every(count, 7, 3),
            "first 40 %": first(count, 0.4),
            "largest 30 %": largest(units, 0.3),
            "all": list(range(count)),
            "none": [],
        }
        for streamed_name, streamed in chosen.items():
            for rate in (12e9, 25e9, 50e9):
                for latency in (15e-6, 0.0, 200e-6) if rate == 25e9 else (15e-6,):
                    gates = [("ring", ring) for ring in (biggest // 2, biggest, 2 * biggest, 3 * biggest, 20 * biggest)]
                    gates += [("streams", number) for number in (0, 1, 2, 3, 8)]
                    for kind, number in gates:
                        gate = Ring(number) if kind == "ring" else Streams(number)
                        case = {"shape": shape, "streamed_units": streamed_name, "bytes_per_second": rate}
                        case |= {"latency_seconds": latency, kind: number}
                        case["step_seconds"] = step_seconds(units, streamed, gate, rate, latency)
                        case["bound_seconds"] = bound_seconds(units, streamed, rate)
                        cases.append(case)
        shapes[shape] = {"units": units, "streamed": chosen}
    golden = {
        "script": f"tools/reference/{Path(__file__).name}",
        "versions": f"python {'.'.join(platform.python_version_tuple()[:2])}",
        "shapes": shapes,
        "cases": cases,
    }
    GOLDEN.write_text(json.dumps(golden) + "\n")
    print(f"{GOLDEN.name}: {len(cases)} cases")


if __name__ == "__main__":
    main()

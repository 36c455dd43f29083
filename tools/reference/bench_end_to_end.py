"""Times `plimsoll generate` against diffusers' StableDiffusionPipeline on one model folder, run by run in turn.

Usage: bench_end_to_end.py PLIMSOLL FOLDER [--threads N] [--runs R] [--steps 20]

Both draw "red heart" with the same seed, steps, guidance and threads, each run in a fresh process that loads the model.
Of plimsoll the whole process counts, as seen from outside. Of diffusers, importing Python packages does not count: only
from_pretrained, the call, and saving the PNG (see bench_diffusers.py). Printed is one JSON object: medians of seconds, the
median of the runs' ratios (plimsoll / diffusers; less is better), and how far the pictures are apart, in levels.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image, ImageChops


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plimsoll", help="the binary, built with --release")
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=4.0)
    return parser.parse_args()


def checked(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the run failed: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def run_plimsoll(options, environment, out):
    command = [
        options.plimsoll, "generate", "red heart", "--model", options.folder, "--seed", "1", "--steps", str(options.steps),
        "--guidance", str(options.guidance), "--threads", str(options.threads), "--json", "--out", out,
    ]
    started = time.time()
    checked(command, environment)
    return time.time() - started


def run_diffusers(options, environment, out):
    script = str(Path(__file__).with_name("bench_diffusers.py"))
    command = [
        sys.executable, script, options.folder, "--seed", "1", "--steps", str(options.steps), "--guidance",
        str(options.guidance), "--threads", str(options.threads), "--out", out, "--child", repr(time.time()),
    ]
    last = json.loads(checked(command, environment).strip().splitlines()[-1])
    return last["seconds"]["without_import"], last["versions"]


def main():
    options = arguments()
    threads = str(options.threads)
    environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, HF_HUB_OFFLINE="1")
    ours, theirs, versions = [], [], {}
    with tempfile.TemporaryDirectory() as scratch:
        pictures = [str(Path(scratch) / name) for name in ("plimsoll.png", "diffusers.png")]
        for index in range(options.runs + 1):
            own = run_plimsoll(options, environment, pictures[0])
            peer, versions = run_diffusers(options, environment, pictures[1])
            if index > 0:  # the first run brings the files into the page cache
                ours.append(own)
                theirs.append(peer)
        first, second = (Image.open(path).convert("RGB") for path in pictures)
        apart = max(high for _, high in ImageChops.difference(first, second).getextrema())
    print(json.dumps({
        "threads": options.threads, "steps": options.steps, "versions": versions,
        "plimsoll_seconds": round(statistics.median(ours), 3),
        "diffusers_seconds": round(statistics.median(theirs), 3),
        "ratio": round(statistics.median(own / peer for own, peer in zip(ours, theirs)), 3),
        "levels_apart": apart, "runs": [[round(own, 3), round(peer, 3)] for own, peer in zip(ours, theirs)],
    }, indent=1))


if __name__ == "__main__":
    main()

"""Times diffusers' StableDiffusionPipeline end to end on a folder, each run in a fresh process; prints one JSON object.

Usage: bench_diffusers.py FOLDER [--threads N] [--runs R] [--steps 20] [--prompt "red heart"] [--width 64] [--height 64]
       [--guidance 4.0] [--dtype float32|bfloat16] [--out PNG]

One run, from the start of the process to the written PNG, in seconds:

- `import`: the interpreter's start, torch, diffusers, transformers
- `load`: from_pretrained; `generate`: prompt to picture; `save`: the PNG
- `first_step`: from the end of `import` to the end of the first denoise step
- `without_import` = load + generate + save; `with_import` = the whole process, as its parent sees it

`median` is over the runs, per column; the runs themselves are listed. One unmeasured run comes first, so that the files
are in the page cache for all.
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prompt", default="red heart")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--height", type=int, default=64)
    parser.add_argument("--guidance", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--out", help="where the last run's picture stays")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def child(options):
    """One run; `options.child` is the wall clock at which the parent started this process."""
    import torch
    from diffusers import StableDiffusionPipeline

    import diffusers
    import transformers

    torch.set_num_threads(options.threads)
    for library in (diffusers, transformers):
        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
    marks = [options.child, time.time()]
    pipeline = StableDiffusionPipeline.from_pretrained(
        options.folder, dtype=getattr(torch, options.dtype), safety_checker=None
    )
    pipeline.set_progress_bar_config(disable=True)
    marks.append(time.time())
    first_step = []

    def on_step(pipeline, index, timestep, values):
        if index == 0:
            first_step.append(time.time())
        return values

    image = pipeline(
        options.prompt, num_inference_steps=options.steps, guidance_scale=options.guidance, width=options.width,
        height=options.height, generator=torch.Generator("cpu").manual_seed(options.seed), callback_on_step_end=on_step,
    ).images[0]
    marks.append(time.time())
    image.save(options.out)
    marks.append(time.time())
    names = ["import", "load", "generate", "save"]
    seconds = {name: after - before for name, before, after in zip(names, marks, marks[1:])}
    seconds["first_step"] = first_step[0] - marks[1]
    seconds["without_import"] = marks[-1] - marks[1]
    versions = {"torch": torch.__version__, "diffusers": diffusers.__version__, "transformers": transformers.__version__}
    print(json.dumps({"seconds": seconds, "versions": versions, "threads": torch.get_num_threads()}))


def main():
    options = arguments()
    if options.child is not None:
        return child(options)
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), MKL_NUM_THREADS=str(options.threads), HF_HUB_OFFLINE="1")
    runs, last = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or str(Path(scratch) / "picture.png")
        for index in range(options.runs + 1):
            started = time.time()
            command = [sys.executable, __file__, *sys.argv[1:], "--out", out, "--child", repr(started)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"the run failed:\n{done.stderr}")
            last = json.loads(done.stdout.strip().splitlines()[-1])
            last["seconds"]["with_import"] = time.time() - started
            if index > 0:
                runs.append({name: round(value, 4) for name, value in last["seconds"].items()})
    median = {name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]}
    settings = {
        name: getattr(options, name)
        for name in ("prompt", "steps", "guidance", "width", "height", "seed", "dtype")
    }
    print(json.dumps({
        **settings, "threads": last["threads"], "versions": last["versions"], "median": median, "runs": runs,
    }, indent=1))


if __name__ == "__main__":
    main()

"""What every reference script shares: versions, paths, seeded arrays, writing goldens, loading a pipeline in f32.

All scripts are deterministic: values come from seeded generators, files are written with sorted names and no
dates. Run again with the pinned versions on the same kind of CPU, they write the same bytes.
"""

import hashlib
import json
import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import numpy as np
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.set_grad_enabled(False)

REPO = Path(__file__).resolve().parents[2]
FIXTURES = REPO / "fixtures"
MODELS = FIXTURES / "models"
GOLDENS = FIXTURES / "goldens"
TINY_MODELS = ["sd15", "sd2", "sdxl", "vae4", "groups"]


def quiet():
    """Silences progress bars and advice of diffusers and transformers."""
    import diffusers
    import transformers

    diffusers.logging.set_verbosity_error()
    diffusers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def versions():
    """The versions that shaped a golden, as one line."""
    names = [f"python {sys.version_info.major}.{sys.version_info.minor}", f"torch {torch.__version__.split('+')[0]}"]
    for name in ("diffusers", "transformers", "tokenizers", "PIL", "torchsde"):
        if name in sys.modules:
            names.append(f"{name.replace('PIL', 'pillow')} {sys.modules[name].__version__}")
    return ", ".join(names)


def provenance(script):
    return {"script": f"tools/reference/{Path(script).name}", "versions": versions()}


def array_rng(name):
    """A numpy generator keyed by a name, so that no value depends on the order in which values are made."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")))


def normal(name, *shape, scale=1.0, shift=0.0):
    """An f32 tensor of normal values keyed by `name`."""
    return torch.from_numpy((array_rng(name).standard_normal(shape) * scale + shift).astype(np.float32))


def save_tensors(path, tensors, script, **metadata):
    """Writes tensors (sorted by name, contiguous) with where they came from in the metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = {name: tensors[name].detach().contiguous().clone() for name in sorted(tensors)}
    for name, tensor in ordered.items():
        if tensor.is_floating_point():
            assert torch.isfinite(tensor).all(), f"{path.name}: `{name}` is not finite"
    save_file(ordered, path, metadata={**provenance(script), **metadata})
    sort_metadata(path)
    print(f"{path.relative_to(REPO)}: {len(ordered)} tensors, {path.stat().st_size} bytes")


def sort_metadata(path):
    """Rewrites a safetensors header with its metadata in sorted order (the library writes it in hash order)."""
    data = path.read_bytes()
    header_len = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_len])
    metadata = header.pop("__metadata__", None)
    ordered = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    ordered.update(header)
    text = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + header_len :])
    path.chmod(0o644)


def save_json(path, value, script, indent=1):
    """Writes `value` (an object) with where it came from first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**provenance(script), **value}, indent=indent, ensure_ascii=True, allow_nan=False)
    path.write_text(text + "\n")
    print(f"{path.relative_to(REPO)}: {path.stat().st_size} bytes")


def model_folders(arguments):
    """(name, folder) of the tiny models and of `emoji64`, whose folder may be given as the first argument."""
    emoji64 = Path(arguments[0]) if arguments else REPO / "assets" / "emoji64"
    return [(name, MODELS / name) for name in TINY_MODELS] + [("emoji64", emoji64)]


def load_pipeline(folder, image_to_image=False):
    """The folder's pipeline, every weight upcast to f32 from its stored values, without safety checker."""
    import diffusers

    quiet()
    index = json.loads((Path(folder) / "model_index.json").read_text())
    kind = index["_class_name"]
    if image_to_image:
        kind = kind.replace("Pipeline", "Img2ImgPipeline")
    extra = {} if "XL" in kind else {"safety_checker": None}
    pipeline = getattr(diffusers, kind).from_pretrained(str(folder), dtype=torch.float32, **extra)
    pipeline.set_progress_bar_config(disable=True)
    for component in ("unet", "vae", "text_encoder", "text_encoder_2"):
        module = getattr(pipeline, component, None)
        if module is not None:
            module.eval()
            assert all(p.dtype == torch.float32 for p in module.parameters()), component
    return pipeline

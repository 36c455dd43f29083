"""Builds empty stand-ins for the CUDA libraries, so that PyPI's CUDA build of torch imports on a machine without them.

Usage: torch_cpu_stubs.py SITE_PACKAGES/torch/lib STUB_FOLDER     (needs gcc and readelf)

torch's shared objects name about 15 CUDA libraries (3 GB) that no CPU code calls. Each stand-in exports the versioned
symbols torch asks of it, as functions that return an error.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_SYMBOL = re.compile(r"^(cu|nccl|nv|CU|__cuda|__nv)")


def readelf(option, path):
    return subprocess.run(["readelf", *option, "-W", path], capture_output=True, text=True, check=True).stdout


def scan(libraries):
    """(libraries needed, symbols defined, versions asked for per undefined symbol)"""
    needed, defined, undefined = set(), set(), collections.defaultdict(set)
    for library in libraries:
        needed |= set(re.findall(r"Shared library: \[([^\]]+)\]", readelf(["-d"], library)))
        for line in readelf(["--dyn-syms"], library).splitlines():
            fields = line.split()
            if len(fields) < 8 or not fields[0].endswith(":"):
                continue
            name, _, version = fields[7].partition("@")
            if fields[6] == "UND":
                undefined[name].add(version.lstrip("@"))
            else:
                defined.add(name)
    return needed, defined, undefined


def home(name, version, stubs):
    """The library that a symbol belongs to: by its version where that is a library's name, else by its prefix."""
    if version in stubs:
        return version
    stem = version.split(".so")[0]
    for stub in stubs:
        if stem and stub.startswith(stem):
            return stub
    for prefix, stub in sorted(((s.split(".so")[0][3:].split("_")[0].lower(), s) for s in stubs), key=lambda p: (-len(p[0]), p)):
        if prefix != "cuda" and name.lower().startswith(prefix):
            return stub
    return "libcuda.so.1" if re.match(r"cu[A-Z]", name) else "libcudart.so.12"


def build(stub, symbols, folder):
    source, script, out = folder / f"{stub}.c", folder / f"{stub}.map", folder / stub
    names = sorted({name for versioned in symbols.values() for name in versioned})
    source.write_text("".join(f"int {name}(void){{return 100;}}\n" for name in names) or "int unused;\n")
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", out, source, f"-Wl,-soname,{stub}"]
    versions = sorted(version for version in symbols if version)
    if versions:
        script.write_text("".join(f"{v} {{ global: {' '.join(f'{n};' for n in sorted(symbols[v]))} }};\n" for v in versions))
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    print(f"{stub}: {len(names)} symbols")


def main():
    libraries, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    needed, defined, undefined = scan(path for path in sorted(libraries.iterdir()) if ".so" in path.name)
    stubs = sorted(name for name in needed if CUDA_LIBRARY.match(name) and not (libraries / name).exists())
    symbols = {stub: collections.defaultdict(set) for stub in stubs}
    for name, versions in undefined.items():
        if name not in defined and CUDA_SYMBOL.match(name):
            for version in versions:
                symbols.setdefault(home(name, version, stubs), collections.defaultdict(set))[version].add(name)
    for stub in sorted(symbols):
        build(stub, symbols[stub], folder)


if __name__ == "__main__":
    main()

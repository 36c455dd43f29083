#!/bin/sh
# Makes every fixture again. Usage: make_all.sh PYTHON   (a Python with requirements.txt installed)
set -eu
cd "$(dirname "$0")"
python=$1
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
for script in make_models tokenizer_goldens module_goldens variant_goldens upscaler_goldens op_goldens noise_goldens \
    sampling_goldens sampling_trajectories sampling_brownian e2e_goldens residency_sim; do
    echo "== $script"
    "$python" "$script.py"
done

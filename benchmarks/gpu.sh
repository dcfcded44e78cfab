#!/usr/bin/env bash
# Everything that waits for an NVIDIA GPU, with one command:
#
#     bash benchmarks/gpu.sh [FOLDER [PART ...]]
#
# or with the names of parts that are to be run, such as `"resnet20-*" pairwise`: each
# takes at most LIMIT seconds, so one part fits where commands are cut off at ten minutes.
# Run it in the repository with the package, its test extra and JAX's CUDA plugin
# installed (`pip install -e ./compare -e ".[test,cuda]"`). PYTHON names the interpreter,
# TORCH_PYTHON one that has PyTorch with CUDA (without it the peer is left out), LIMIT
# the seconds that one part may take. Each part's output is kept in FOLDER (default
# `runs/gpu`); a part that fails or is missing does not stop the others. The exit
# status is the number of parts that failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

python="${PYTHON:-python}"
folder="${1:-runs/gpu}"
only=("${@:2}")
limit="${LIMIT:-540}"
failed=0
mkdir -p "$folder"
# conftest.py would choose the CPU; the CPU stays available for host work.
export JAX_PLATFORMS=cuda,cpu PYTHONUNBUFFERED=1
# Let JAX grow instead of taking most of the memory at once: PyTorch shares it.
export XLA_PYTHON_CLIENT_PREALLOCATE=false

part() { # part NAME FILE-THAT-MUST-EXIST COMMAND...
  local name="$1" needed="$2"
  shift 2
  if [[ ${#only[@]} -gt 0 ]]; then
    local pattern wanted=
    for pattern in "${only[@]}"; do
      # shellcheck disable=SC2053 -- a pattern
      [[ "$name" == $pattern ]] && wanted=1
    done
    [[ -n "$wanted" ]] || return
  fi
  if [[ ! -e "$needed" ]]; then
    echo "== $name: left out, $needed is not there"
    return
  fi
  echo "== $name: $*"
  timeout "$limit" "$@" 2>&1 | tee "$folder/$name.txt"
  local status="${PIPESTATUS[0]}"
  if [[ "$status" -ne 0 ]]; then
    echo "== $name: failed with status $status"
    failed=$((failed + 1))
  fi
}

if ! "$python" -c 'import jax; raise SystemExit(jax.default_backend() != "gpu")'; then
  echo "JAX sees no GPU with $python; nothing was run" >&2
  exit 2
fi
{
  date -u +%F
  git rev-parse HEAD
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  "$python" -c 'import jax, flax; print("jax", jax.__version__, "flax", flax.__version__)'
} 2>/dev/null | tee "$folder/machine.txt"

peer=()
[[ -n "${TORCH_PYTHON:-}" ]] && peer=(--torch-python "$TORCH_PYTHON")

part precision tests/accelerator \
  "$python" -m pytest tests/accelerator -m accelerator -q
# ResNet-20 by replicas and precision: what does each way reach of what is possible?
# Unrolling compiles every replica, so it is left out where they are many.
ways() { # ways NAME FLAGS OPTIONS...
  local name="$1" flags="$2"
  shift 2
  part "$name" benchmarks/replicas.py env XLA_FLAGS="${XLA_FLAGS:-} $flags" \
    "$python" benchmarks/replicas.py --models resnet20 --batch 128 --updates 8 \
    --seconds 60 "$@"
}
few=(--mappings loop vmap unroll)
many=(--mappings loop vmap)
for dtype in bfloat16 float32; do
  ways "resnet20-1-$dtype" "" --dtype "$dtype" --replicas 1 --mappings loop
  ways "resnet20-4-$dtype" "" --dtype "$dtype" --replicas 4 "${few[@]}"
  ways "resnet20-10-$dtype" "" --dtype "$dtype" --replicas 10 "${few[@]}"
  ways "resnet20-32-$dtype" "" --dtype "$dtype" --replicas 32 "${many[@]}"
done
# What XLA can be told: command buffers with convolutions and loops, one layout for all.
buffers=--xla_gpu_enable_command_buffer=+CONVOLUTION,+WHILE
ways flags-buffers "$buffers" --dtype bfloat16 --replicas 10 "${many[@]}"
ways flags-nhwc --xla_gpu_force_conv_nhwc=true --dtype bfloat16 --replicas 10 "${many[@]}"
ways flags-nchw --xla_gpu_force_conv_nchw=true --dtype bfloat16 --replicas 10 "${many[@]}"
# The peer, compiled, and what `auto` makes of it.
ways torch "" --dtype bfloat16 --replicas 10 --mappings auto "${peer[@]}" \
  --torch-compile
part small benchmarks/replicas.py \
  "$python" benchmarks/replicas.py --mappings vmap unroll loop auto "${peer[@]}" \
  --models mlp mlp-8x8x1 lenet5 lenet5-32x32x3 --seconds 60
# Ten seeds of ResNet-32 at once, against ten single runs and a PyTorch loop.
part resnet32 benchmarks/replicas.py \
  "$python" benchmarks/replicas.py --models resnet32 --mappings auto --batch 128 \
  --updates 8 --seconds 240 "${peer[@]}"
part pairwise benchmarks/pairwise.py \
  "$python" benchmarks/pairwise.py
part digits churn_jax/cli.py \
  "$python" -m churn_jax.cli study digits --out "$folder/digits"
part dm-digits churn_jax/cli.py \
  "$python" -m churn_jax.cli study dm-digits --out "$folder/dm-digits"
# What shared weights, perturbed passes and an online teacher cost.
part steps benchmarks/steps.py \
  "$python" benchmarks/steps.py tiled teachers perturbed
# Click models by table size.
part clicks benchmarks/clicks.py \
  "$python" benchmarks/clicks.py "${peer[@]}"
# What the machine adds, with its ordinary kernels and with deterministic ones. That two
# launches differ (exit code 1) is a finding, not a failure.
doctor() { # doctor NAME OPTIONS...
  local name="$1"
  shift
  part "$name" churn_jax/cli.py bash -c '"$@"; [[ $? -le 1 ]]' doctor \
    "$python" -m churn_jax.cli doctor "$@" --out "$folder/$name"
}
doctor doctor-digits digits --updates 10000
doctor doctor-digits-deterministic digits --updates 10000 --deterministic
doctor doctor-resnet20 digits --model resnet20 --updates 1000
doctor doctor-resnet20-deterministic digits --model resnet20 --updates 1000 \
  --deterministic

echo "== $failed part(s) failed; the outputs are in $folder"
exit "$failed"

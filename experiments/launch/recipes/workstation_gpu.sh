#!/usr/bin/env bash
# A study on one workstation with an NVIDIA GPU (or none: then the CPU trains).
#
#     bash workstation_gpu.sh [--dry-run]
#
# PRESET is looked for where it runs. Installs once into ENVIRONMENT. Ctrl-C saves; the same command goes on.
set -euo pipefail

PRESET="${PRESET:-experiments/reproducibility/presets.py:cifar10_resnet32}"
OUT="${OUT:-runs/${PRESET##*.py:}}"
DATA_DIR="${DATA_DIR:-$HOME/tensorflow_datasets}"
own=(${DATA:+--data "$DATA"} ${MODEL:+--model "$MODEL"}) # with PRESET=own: DATA=mine.npz, MODEL=nets.py:Net
ENVIRONMENT="${ENVIRONMENT:-$HOME/churn}"
SOURCE="${SOURCE:-}" # a clone, a wheel, or a requirement for pip: /path/to/churn_jax[cuda]

dry=false
[[ "${1:-}" == --dry-run ]] && dry=true
# As it can be typed; words with spaces are quoted.
show() {
  local word between=''
  for word; do
    case "$word" in
      '' | *[!A-Za-z0-9_./:=,+@%~-]*) word="'${word//\'/\'\\\'\'}'" ;;
    esac
    printf '%s%s' "$between" "$word"
    between=' '
  done
  echo
}
run() { if $dry; then show "$@"; else "$@"; fi; }

if $dry && [[ -z "$SOURCE" ]]; then SOURCE='/path/to/churn_jax[cuda]'; fi # as it would be given
if $dry || [[ ! -x "$ENVIRONMENT/bin/churn-jax" ]]; then
  if [[ -z "$SOURCE" ]]; then
    echo "$0: set SOURCE to what pip should install, such as /path/to/churn_jax[cuda]" >&2 && exit 2
  fi
  run python3 -m venv "$ENVIRONMENT"
  # churn-compare, which it needs: in the same clone, or a wheel next to its wheel.
  place="${SOURCE%%\[*}" needs=()
  case "$SOURCE" in
    *git+*) needs=("git+${SOURCE#*git+}#subdirectory=compare") ;;
    *.whl*) needs=(--find-links "$(dirname "$place")") ;;
    */*) needs=("$place/compare") ;;
  esac
  run "$ENVIRONMENT/bin/pip" install --quiet "${needs[@]}" "$SOURCE"
fi
# JAX takes memory as it needs it, so that a desktop can share the GPU.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
run "$ENVIRONMENT/bin/churn-jax" study "$PRESET" ${own[@]+"${own[@]}"} --data-dir "$DATA_DIR" --launch.coordinator none --out "$OUT"

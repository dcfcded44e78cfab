#!/usr/bin/env bash
# A study on a Cloud TPU VM or a slice of several hosts: creates it, installs, trains.
#
#     bash tpu_vm.sh [--dry-run] [--delete]
#     ACCELERATOR=v5litepod-64 MESH=replica=8,data=8 bash tpu_vm.sh
#
# Every host runs the same command and is told by Cloud TPU who takes part. OUT lies on a
# file system that all hosts see (NFS, Filestore, or a bucket mounted by gcsfuse): files
# of a study other than its checkpoints are not written to gs:// addresses. Run it again
# to go on after an interruption. It costs what the TPU costs until it is deleted: with
# --delete that happens when the script ends, whatever ended it; otherwise the last line
# says how to do it.
set -euo pipefail

NAME="${NAME:-churn}"
ZONE="${ZONE:-us-central1-a}"
ACCELERATOR="${ACCELERATOR:-v5litepod-4}"
RUNTIME="${RUNTIME:-v2-alpha-tpuv5-lite}"
PRESET="${PRESET:-experiments/reproducibility/presets.py:cifar10}"
REPLICAS="${REPLICAS:-8}"
MESH="${MESH:-replica=4}"
OUT="${OUT:-/mnt/shared/runs/${PRESET##*.py:}}"
DATA_DIR="${DATA_DIR:-/mnt/shared/tensorflow_datasets}"
own=(${DATA:+--data "$DATA"} ${MODEL:+--model "$MODEL"}) # with PRESET=own: DATA=/mnt/shared/mine.npz, MODEL=nets.py:Net
SOURCE="${SOURCE:-}" # a wheel that `make dist` built, next to that of churn-compare, or a requirement for pip
CREATE="${CREATE:-yes}" # no: it is there already

dry=false
delete=false
for option; do
  case "$option" in
    --dry-run) dry=true ;;
    --delete) delete=true ;;
    *) echo "$0: unknown option: $option (there are --dry-run and --delete)" >&2 && exit 2 ;;
  esac
done
if $dry && [[ -z "$SOURCE" ]]; then SOURCE='churn_jax.whl'; fi # as it would be given
if [[ -z "$SOURCE" ]]; then
  echo "$0: set SOURCE to a wheel of churn-jax, or to what pip should install on the hosts" >&2 && exit 2
fi
# churn-compare, which it needs, has the same version and lies in the same place.
needs=()
case "$SOURCE" in
  *git+*) needs=("git+${SOURCE#*git+}#subdirectory=compare") ;;
  *.whl) needs=("${SOURCE%churn_jax*}churn_compare${SOURCE##*churn_jax}") ;;
esac
if [[ "$SOURCE" == *.whl && -e "$SOURCE" && ! -e "${needs[0]}" ]]; then
  echo "$0: ${needs[0]} is not there; \`make dist\` builds both wheels" >&2 && exit 2
fi
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

# However the script ends: deletes the machine with --delete, or says how to.
finish() {
  local code=$?
  trap '' INT TERM HUP
  if ! $delete || ! run gcloud compute tpus tpu-vm delete "$NAME" --zone "$ZONE" --quiet; then
    echo "Delete it with: gcloud compute tpus tpu-vm delete $NAME --zone $ZONE"
  fi
  exit "$code"
}
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
[[ "$CREATE" == no ]] || trap finish EXIT

there() { ! $dry && gcloud compute tpus tpu-vm describe "$NAME" --zone "$ZONE" >/dev/null 2>&1; }
if [[ "$CREATE" != no ]] && ! there; then
  run gcloud compute tpus tpu-vm create "$NAME" --zone "$ZONE" \
    --accelerator-type "$ACCELERATOR" --version "$RUNTIME"
fi
if [[ "$PRESET" == experiments/* ]]; then # of a paper, from the clone where this runs
  run gcloud compute tpus tpu-vm scp --recurse experiments "$NAME:" --zone "$ZONE" --worker=all
fi
for file in "${DATA:-}" "${MODEL:-}"; do # functions and networks of yours, in the current folder
  if [[ "$file" == *.py:* ]]; then
    run gcloud compute tpus tpu-vm scp "${file%%:*}" "$NAME:" --zone "$ZONE" --worker=all
  fi
done
on_all() { run gcloud compute tpus tpu-vm ssh "$NAME" --zone "$ZONE" --worker=all --command "$1"; }
if [[ "$SOURCE" == *.whl ]]; then # installed from a copy on every host
  run gcloud compute tpus tpu-vm scp "${needs[0]}" "$SOURCE" "$NAME:" --zone "$ZONE" --worker=all
  needs=("./${needs[0]##*/}") SOURCE="./${SOURCE##*/}[tpu]"
fi
# The hosts' own Python is 3.10, and 3.11 is needed: uv brings one.
on_all "python3 -m pip install --quiet --user uv && ~/.local/bin/uv venv --quiet \
--allow-existing --python 3.12 ~/churn && ~/.local/bin/uv pip install --quiet \
--python ~/churn/bin/python $(show "${needs[@]}" "$SOURCE")"
# shellcheck disable=SC2088 # the home folder of the host
on_all "$(show '~/churn/bin/churn-jax' study "$PRESET" ${own[@]+"${own[@]}"} --data-dir "$DATA_DIR" \
  --replicas "$REPLICAS" --mesh "$MESH" --launch.coordinator auto --out "$OUT")"

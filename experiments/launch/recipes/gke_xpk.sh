#!/usr/bin/env bash
# A study on GKE through xpk, from the image that Containerfile builds.
#
#     bash gke_xpk.sh [--dry-run]
#
# The cluster is there already (`xpk cluster create --tpu-type ...`) and mounts shared
# storage at /mnt/shared. GKE restarts a workload that was preempted, and the same
# command goes on.
set -euo pipefail

CLUSTER="${CLUSTER:-churn}"
ZONE="${ZONE:-us-central1-a}"
PROJECT="${PROJECT:-my-project}"
TPU_TYPE="${TPU_TYPE:-v5litepod-64}"
IMAGE="${IMAGE:-gcr.io/$PROJECT/churn-jax}"
WORKLOAD="${WORKLOAD:-churn}"
PRESET="${PRESET:-experiments/reproducibility/presets.py:cifar10}"
REPLICAS="${REPLICAS:-8}"
MESH="${MESH:-replica=8,data=8}"
OUT="${OUT:-/mnt/shared/runs/${PRESET##*.py:}}"
DATA_DIR="${DATA_DIR:-/mnt/shared/tensorflow_datasets}"
own=(${DATA:+--data "$DATA"} ${MODEL:+--model "$MODEL"}) # with PRESET=own: files on the shared storage, MODEL=/mnt/shared/nets.py:Net

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

run docker build --file Containerfile --build-arg EXTRA=tpu --tag "$IMAGE" .
run docker push "$IMAGE"
run xpk workload create --cluster "$CLUSTER" --zone "$ZONE" --project "$PROJECT" \
  --workload "$WORKLOAD" --tpu-type "$TPU_TYPE" --docker-image "$IMAGE" \
  --max-restarts 20 --command "cd /opt/churn_jax && $(show churn-jax study "$PRESET" ${own[@]+"${own[@]}"} --data-dir "$DATA_DIR" \
    --replicas "$REPLICAS" --mesh "$MESH" --launch.coordinator auto --out "$OUT")"

#!/usr/bin/env bash
# The same on a queued resource, which waits for capacity and may be preempted.
#
#     bash tpu_queued.sh [--dry-run]
#
# Asks for a spot slice, waits until it is there, trains, and asks again when it was
# taken away: a preempted study has saved and goes on. At most TRIES requests.
set -euo pipefail

NAME="${NAME:-churn}"
ZONE="${ZONE:-us-central1-a}"
ACCELERATOR="${ACCELERATOR:-v5litepod-64}"
RUNTIME="${RUNTIME:-v2-alpha-tpuv5-lite}"
TRIES="${TRIES:-20}"

dry=false
[[ "${1:-}" == --dry-run ]] && dry=true
run() { if $dry; then printf '%s\n' "$*"; else "$@"; fi; }
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

state() {
  gcloud compute tpus queued-resources describe "$NAME-request" --zone "$ZONE" \
    --format 'value(state.state)' 2>/dev/null || echo MISSING
}
forget() {
  run gcloud compute tpus queued-resources delete "$NAME-request" --zone "$ZONE" --quiet --force
}
ask() {
  run gcloud compute tpus queued-resources create "$NAME-request" --node-id "$NAME" \
    --zone "$ZONE" --accelerator-type "$ACCELERATOR" --runtime-version "$RUNTIME" --spot
}

for ((try = 1; try <= TRIES; try++)); do
  ask
  if ! $dry; then
    until [[ "$(state)" == ACTIVE ]]; do
      case "$(state)" in FAILED | SUSPENDED | MISSING) break ;; esac
      sleep 30
    done
  fi
  code=0
  NAME="$NAME" ZONE="$ZONE" ACCELERATOR="$ACCELERATOR" RUNTIME="$RUNTIME" \
    bash "$here/tpu_vm.sh" "$@" || code=$?
  forget
  # 2 is bad input: asking again would not help.
  if $dry || [[ $code -eq 0 || $code -eq 2 ]]; then exit "$code"; fi
done
exit 3

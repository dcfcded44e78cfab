#!/usr/bin/env bash
# The same on a queued resource, which waits for capacity and may be preempted.
#
#     bash tpu_queued.sh [--dry-run] [--delete]
#
# Asks for a spot slice, waits until it is there, trains, and asks again when it was
# taken away: a preempted study has saved and goes on. At most TRIES requests. A request
# is deleted after its study. A script that is interrupted says how to delete the request
# that it leaves, or deletes it with --delete.
set -euo pipefail

NAME="${NAME:-churn}"
ZONE="${ZONE:-us-central1-a}"
ACCELERATOR="${ACCELERATOR:-v5litepod-64}"
RUNTIME="${RUNTIME:-v2-alpha-tpuv5-lite}"
MESH="${MESH:-replica=8,data=8}" # a large slice wants all of its chips in the mesh
TRIES="${TRIES:-20}"
WAIT="${WAIT:-30}" # seconds between two questions

dry=false
delete=false
for option; do
  case "$option" in
    --dry-run) dry=true ;;
    --delete) delete=true ;;
    *) echo "$0: unknown option: $option (there are --dry-run and --delete)" >&2 && exit 2 ;;
  esac
done
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
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

state() {
  gcloud compute tpus queued-resources describe "$NAME-request" --zone "$ZONE" \
    --format 'value(state.state)' 2>/dev/null || echo MISSING
}
forget() {
  if run gcloud compute tpus queued-resources delete "$NAME-request" --zone "$ZONE" --quiet --force; then
    pending=false
  fi
}
ask() {
  pending=true
  run gcloud compute tpus queued-resources create "$NAME-request" --node-id "$NAME" \
    --zone "$ZONE" --accelerator-type "$ACCELERATOR" --runtime-version "$RUNTIME" --spot
}

# However the script ends: deletes the request it leaves with --delete, or says how to.
pending=false
finish() {
  local code=$?
  trap '' INT TERM HUP
  if $pending && $delete; then forget; fi
  if $pending; then
    echo "Delete it with: gcloud compute tpus queued-resources delete $NAME-request --zone $ZONE --force" >&2
  fi
  exit "$code"
}
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
trap finish EXIT

# Whether the slice came; one that is not told of three times is gone.
arrived() {
  local missing=0
  while ! $dry; do
    case "$(state)" in
      ACTIVE) break ;;
      FAILED | SUSPENDING | SUSPENDED) return 1 ;;
      MISSING) if ((++missing == 3)); then return 1; fi ;;
      *) missing=0 ;;
    esac
    sleep "$WAIT" &>/dev/null &
    wait $! # unlike sleep itself, a signal ends it at once
  done
}

# Before anything is asked for: a study that cannot start costs nothing.
if ! $dry && [[ -z "${SOURCE:-}" ]]; then
  echo "$0: set SOURCE to a wheel of churn-jax, or to what pip should install on the hosts" >&2 && exit 2
fi
CREATE=no bash "$here/tpu_vm.sh" --dry-run >/dev/null || exit

for ((try = 1; try <= TRIES; try++)); do
  ask
  code=1
  if arrived; then
    code=0
    # It is there: one that was taken away meanwhile must not be bought at full price.
    CREATE=no NAME="$NAME" ZONE="$ZONE" ACCELERATOR="$ACCELERATOR" RUNTIME="$RUNTIME" \
      MESH="$MESH" bash "$here/tpu_vm.sh" "$@" || code=$?
  fi
  forget
  # 2 is bad input: asking again would not help.
  if $dry || [[ $code -eq 0 || $code -eq 2 ]]; then exit "$code"; fi
done
exit 3

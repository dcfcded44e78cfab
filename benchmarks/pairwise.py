"""Surrogate churn of every pair of runs: `pairwise` against plain NumPy.

    python benchmarks/pairwise.py [--runs 32] [--examples 10000] [--classes 100]

Each method runs in a process of its own, so that its peak memory is its own: time is
the median of the repeats after one warm-up, memory the growth of the resident set
over what the process held with the logits loaded, sampled during two calls before the
timed ones, compilation included.

* `pairwise`: what the library does, all R x R ordered pairs.
* `numpy half`: NumPy, scores once per run, a loop over the R (R - 1) / 2 pairs.
* `numpy full`: the same loop over all R x R pairs.
"""

import argparse
import datetime
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

METHODS = ("pairwise", "numpy half", "numpy full")


def resident_mib():
    """Resident set of this process in MiB (Linux)."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class PeakMemory(threading.Thread):
    """Samples the resident set every two milliseconds until `stop`."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before = self.peak = resident_mib()
        self.done = threading.Event()

    def run(self):
        """Samples until told to stop."""
        while not self.done.wait(0.002):
            self.peak = max(self.peak, resident_mib())

    def stop(self):
        """Growth in MiB since the start."""
        self.done.set()
        self.join()
        return self.peak - self.before


def numpy_surrogate_churn(logits, half):
    scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
    R = logits.shape[0]
    matrix = np.zeros((R, R))
    for a in range(R):
        for b in range(a + 1 if half else 0, R):
            matrix[a, b] = 0.5 * np.abs(scores[a] - scores[b]).sum(axis=-1).mean()
            if half:
                matrix[b, a] = matrix[a, b]
    return matrix


def measure(method, runs, examples, classes, repeats):
    """One method in this process; prints JSON."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((runs, examples, classes), dtype=np.float32)
    logits *= 3
    if method == "pairwise":
        import jax
        import jax.numpy as jnp

        from churn_jax.metrics import pairwise, surrogate_churn

        logits = jax.block_until_ready(jnp.asarray(logits))

        def call():
            return np.asarray(pairwise(surrogate_churn, logits))
    else:

        def call():
            return numpy_surrogate_churn(logits, half=method == "numpy half")

    gc.collect()
    time.sleep(2)  # what the set-up freed leaves the resident set with a delay
    memory = PeakMemory()
    memory.start()
    matrix = call()  # compiles; its memory counts, its time does not
    call()
    extra = memory.stop()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    result = {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "extra_mib": extra,
        "values": matrix[0].tolist(),
    }
    print(json.dumps(result))


def machine():
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as info:
            names = [
                x.split(":")[1].strip() for x in info if x.startswith("model name")
            ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = (args.runs, args.examples, args.classes, args.repeats)
    if args.only:
        measure(args.only, *size)
        return
    flags = ("--runs", "--examples", "--classes", "--repeats")
    options = [text for pair in zip(flags, map(str, size)) for text in pair]
    results = {}
    for method in METHODS:
        command = [sys.executable, __file__, "--only", method, *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        results[method] = json.loads(done.stdout.splitlines()[-1])
    peer = results["numpy half"]
    for method, result in results.items():
        np.testing.assert_allclose(
            result["values"][1:], peer["values"][1:], rtol=1e-5, err_msg=method
        )
    print(f"surrogate churn, {args.runs} runs x {args.examples} x {args.classes}")
    print(f"{machine()}; {datetime.date.today()}; median of {args.repeats}")
    print()
    print("| method | seconds | fastest | times numpy half | peak extra MiB |")
    print("|---|---|---|---|---|")
    for method, result in results.items():
        print(
            f"| {method} | {result['seconds']:.3f} | {result['fastest']:.3f} "
            f"| {peer['seconds'] / result['seconds']:.1f} | {result['extra_mib']:.0f} |"
        )


if __name__ == "__main__":
    main()

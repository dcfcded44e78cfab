"""Surrogate churn of every pair of runs: `pairwise` against plain NumPy.

    python benchmarks/pairwise.py [--runs 32] [--examples 10000] [--classes 100]

Each method runs in a process of its own, so that its peak memory is its own: time is
the median of the repeats after one warm-up, memory the peak over what the process had
with the logits loaded, compilation included.

* `pairwise`: what the library does, all R x R ordered pairs.
* `numpy`: scores once per run, a loop over the R (R - 1) / 2 pairs.
"""

import argparse
import json

import numpy as np
from turns import alone, head, machine, peak_mebibytes, row, take_turns

METHODS = ("pairwise", "numpy")


def numpy_surrogate_churn(logits):
    scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
    R = logits.shape[0]
    matrix = np.zeros((R, R))
    for a, b in zip(*np.triu_indices(R, 1)):
        matrix[a, b] = 0.5 * np.abs(scores[a] - scores[b]).sum(axis=-1).mean()
    return matrix + matrix.T


def measure(args) -> dict:
    """One method in this process."""
    from time import perf_counter

    rng = np.random.default_rng(0)
    shape = (args.runs, args.examples, args.classes)
    logits = 3 * rng.standard_normal(shape, dtype=np.float32)
    if args.only == "pairwise":
        import jax
        import jax.numpy as jnp

        from churn_jax.metrics import pairwise, surrogate_churn

        logits = jax.block_until_ready(jnp.asarray(logits))

        def call():
            return np.asarray(pairwise(surrogate_churn, logits))
    else:

        def call():
            return numpy_surrogate_churn(logits)

    def turn() -> float:
        start = perf_counter()
        call()
        return perf_counter() - start

    before, matrix = peak_mebibytes(), call()
    seconds = take_turns({"": turn}, args.repeats)[""]
    return {
        "seconds": float(np.median(seconds)),
        "fastest": float(np.min(seconds)),
        "extra_mib": peak_mebibytes() - before,
        "values": matrix[0].tolist(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args)))
        return
    sizes = {k: v for k, v in vars(args).items() if k != "only"}
    words = [word for name, size in sizes.items() for word in (f"--{name}", size)]
    results = {m: alone(__file__, "--only", m, *words) for m in METHODS}
    peer = results["numpy"]
    print(f"surrogate churn, {args.runs} runs x {args.examples} x {args.classes}")
    head("method", "seconds", "fastest", "times numpy", "peak extra MiB")
    for method, result in results.items():
        found, expected = result["values"][1:], peer["values"][1:]
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=method)
        seconds = result["seconds"]
        times = peer["seconds"] / seconds
        row(method, seconds, result["fastest"], times, f"{result['extra_mib']:.0f}")
    print(machine())


if __name__ == "__main__":
    main()

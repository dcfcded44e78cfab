"""The key ratios of `benchmarks/README.md` in three minutes, or exit code 1.

    make bench-check

Each ratio compares contenders that take turns in one run, best repeat over best repeat,
because other work on the machine only ever slows a repeat down. A ratio may fall a
tenth below the one in `BOUNDS`, the lower of two hosts' in the README.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import clicks
import numpy as np
import pairwise
import replicas
import turns

import compare
from churn_jax.command.launch import use_all_cores

# Ratio -> what the README says. Higher is better.
BOUNDS = {
    "lenet5: auto / one by one": 1.00,
    "lenet5: study / one by one": 1.03,
    "mlp: auto / one by one": 1.00,
    "mlp: study / one by one": 1.12,
    "mlp-8x8x1: auto / one by one": 1.40,
    "mlp-8x8x1: study / one by one": 1.65,
    "clicks: examples/s of 10 replicas / of one": 0.95,
    "clicks: update with 10,000 rows / with 1,000,000": 0.83,
    "pairwise / NumPy over half the pairs": 7.5,
    "compare: reading both files / comparing them": 0.35,
}
_TOLERATED = 0.9


def _networks(repeats: int) -> Iterator[tuple[str, float]]:
    for label in ("lenet5", "mlp", "mlp-8x8x1"):
        words = ["--models", label, "--mappings", "auto", "study"]
        words += ["--repeats", str(repeats)]
        found = replicas.measure_model(label, replicas.parse_args(words))
        best = {contender: np.min(taken) for contender, taken in found.items()}
        for way in ("auto", "study"):
            ratio = best["one by one"] / best[f"engine, {way}"]
            yield f"{label}: {way} / one by one", ratio


def _clicks(repeats: int) -> Iterator[tuple[str, float]]:
    args = clicks.parse_args(["--repeats", str(repeats)])

    def contender(rows: int, count: int) -> turns.Measure:
        run = clicks.make_run(args, rows, count)
        return clicks.engine(run, clicks.clicks_of(args, run))

    contenders = {
        "one": contender(args.rows, 1),
        "ten": contender(args.rows, 10),
        "small": contender(10_000, 1),
        "large": contender(1_000_000, 1),
    }
    found = turns.take_turns(contenders, args.repeats)
    best = {name: np.min(taken) for name, taken in found.items()}
    yield "clicks: examples/s of 10 replicas / of one", 10 * best["one"] / best["ten"]
    sizes = best["small"] / best["large"]
    yield "clicks: update with 10,000 rows / with 1,000,000", sizes


def _pairwise(repeats: int) -> Iterator[tuple[str, float]]:
    ours, peer = (
        turns.alone(pairwise.__file__, "--only", method, "--repeats", repeats)
        for method in ("pairwise", "numpy")
    )
    ratio = peer["fastest"] / ours["fastest"]
    yield "pairwise / NumPy over half the pairs", ratio


def _compare(repeats: int) -> Iterator[tuple[str, float]]:
    options = compare.parse_args(["--examples", "250000"])
    with tempfile.TemporaryDirectory() as folder:
        contenders = compare.contenders(options, Path(folder), ("read", "compare"))
        found = turns.take_turns(contenders, repeats)
    best = {name: np.min(taken[:, 0]) for name, taken in found.items()}
    ratio = best["read"] / best["compare"]
    yield "compare: reading both files / comparing them", ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    use_all_cores()
    lost = []
    rows = []
    for measure in (_networks, _clicks, _pairwise, _compare):
        for name, ratio in measure(repeats):
            least = _TOLERATED * BOUNDS[name]
            cells = [f"{figure:.2f}" for figure in (BOUNDS[name], least, ratio)]
            rows.append((name, *cells, "ok" if ratio >= least else "lost"))
            if ratio < least:
                lost.append(name)
    turns.head("ratio", "README", "at least", "measured", "")
    for cells in rows:
        turns.row(*cells)
    print(turns.machine())
    if lost:
        sys.exit(f"slower than benchmarks/README.md says: {'; '.join(lost)}")


if __name__ == "__main__":
    main()

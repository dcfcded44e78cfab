"""The key ratios of `benchmarks/README.md` in three minutes, or exit code 1.

    make bench-check

Each ratio compares contenders that take turns in one run, best repeat over best repeat,
because other work on the machine only ever slows a repeat down. A ratio may fall a
tenth below the one in `BOUNDS`, the lower of two hosts' in the README.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import clicks
import pairwise
import replicas

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
        rates = replicas.measure_model(label, replicas.parse_args(words))
        best = {contender: max(found) for contender, found in rates.items()}
        for way in ("auto", "study"):
            ratio = best[f"engine, {way}"] / best["one by one"]
            yield f"{label}: {way} / one by one", ratio


def _clicks(repeats: int) -> Iterator[tuple[str, float]]:
    args = clicks.parse_args(["--repeats", str(repeats)])

    def contender(rows: int, count: int) -> clicks.Measure:
        run = clicks.make_run(args, rows, count)
        return clicks.engine(run, clicks.windows_of(args, run))

    contenders = {
        "one": contender(args.rows, 1),
        "ten": contender(args.rows, 10),
        "small": contender(10_000, 1),
        "large": contender(1_000_000, 1),
    }
    seconds = clicks.take_turns(contenders, args.repeats)
    best = {name: min(taken) for name, taken in seconds.items()}
    yield "clicks: examples/s of 10 replicas / of one", 10 * best["one"] / best["ten"]
    sizes = best["small"] / best["large"]
    yield "clicks: update with 10,000 rows / with 1,000,000", sizes


def _pairwise(repeats: int) -> Iterator[tuple[str, float]]:
    fastest = {}
    for method in ("pairwise", "numpy half"):
        words = ["--only", method, "--repeats", str(repeats)]
        command = [sys.executable, pairwise.__file__, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        fastest[method] = json.loads(done.stdout.splitlines()[-1])["fastest"]
    ratio = fastest["numpy half"] / fastest["pairwise"]
    yield "pairwise / NumPy over half the pairs", ratio


def _compare(repeats: int) -> Iterator[tuple[str, float]]:
    options = compare.parse_args(["--examples", "250000"])
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        compare.alone("make", options, Path(folder), options.examples)
        for _ in range(repeats):
            for name in ("read", "compare"):
                found = compare.alone(name, options, Path(folder), options.examples)
                best[name] = min(found["seconds"], best.get(name, float("inf")))
    ratio = best["read"] / best["compare"]
    yield "compare: reading both files / comparing them", ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    use_all_cores()
    lost = []
    rows = ["| ratio | README | at least | measured | |", "|:--|--:|--:|--:|:--|"]
    for measure in (_networks, _clicks, _pairwise, _compare):
        for name, ratio in measure(repeats):
            least = _TOLERATED * BOUNDS[name]
            cells = [f"{figure:.2f}" for figure in (BOUNDS[name], least, ratio)]
            verdict = "ok" if ratio >= least else "lost"
            rows.append(f"| {name} | {' | '.join(cells)} | {verdict} |")
            if ratio < least:
                lost.append(name)
    print("\n".join(["", *rows, "", replicas.machine()]))
    if lost:
        sys.exit(f"slower than benchmarks/README.md says: {'; '.join(lost)}")


if __name__ == "__main__":
    main()

"""Several launches of one training run: how far apart they end, and from when on.

The everything-fixed cell of the paper's Table 6: initialisation, order and data are the
same, so what differs between launches is the machine. Every launch is a process of its
own that compiles for itself.
"""

import dataclasses
import datetime
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from churn_compare.documents import write_files
from churn_jax import metrics
from churn_jax.metrics import PairSummary, pairwise, summarize_pairs
from churn_jax.studies.folder import hardware, versions
from churn_jax.studies.repeatability import Launch, Recording, weights_file

# XLA's own description: run-to-run determinism; excludes operations that are not
# deterministic and switches autotuning off, which picks kernels by their speed.
_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


@dataclasses.dataclass(frozen=True)
class Drift:
    """How L launches of one run differ.

    Attributes:
        launch: what each trained.
        perturbed: whether launch l > 0 began with one flipped bit.
        deterministic: whether deterministic kernels were asked for.
        steps: `[S]` updates after which the weights were kept; the first is 0.
        pairs: the launches compared, in the order of the columns of `distance`.
        distance: `[S, pairs]`, `||w_a - w_b||_2 / ||w_a||_2` over all weights;
            exactly 0.0 only where all bits agree.
        first_difference: the first update after which the weights of two launches
            differ (0: they began differently), or None.
        digests: sha256 of each launch's final weights.
        churn: over all pairs, on the test split.
        surrogate_churn: the same with alpha = 1.
        accuracy: `[L]`.
        updates_per_second: `[L]`, without compilation.

    References:
        [reproducibility] Table 6 -- Bhojanapalli et al., On the Reproducibility of
        Neural Network Predictions, 2021. https://arxiv.org/abs/2102.03349
    """

    launch: Launch
    perturbed: bool
    deterministic: bool
    steps: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    distance: np.ndarray
    first_difference: int | None
    digests: tuple[str, ...]
    churn: PairSummary
    surrogate_churn: PairSummary
    accuracy: tuple[float, ...]
    updates_per_second: tuple[float, ...]

    @property
    def repeats(self) -> bool:
        """Whether all launches agree bit by bit, after every update and in the end."""
        return self.first_difference is None and len(set(self.digests)) == 1


def measure(
    launch: Launch,
    count: int,
    *,
    perturb: bool = False,
    deterministic: bool = False,
    folder: Path | None = None,
    on_launch: Callable[[int], None] = lambda number: None,
) -> Drift:
    """Runs `count` launches one after the other, each in a process of its own."""
    if count < 2:
        raise ValueError(f"at least two launches can be compared; got {count}")
    launch.study()  # complains before a process is started
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="launches-", dir=folder) as name:
        folders = [Path(name) / str(number) for number in range(count)]
        for number, own in enumerate(folders):
            on_launch(number)
            seed = number - 1 if perturb and number else launch.perturb
            one = dataclasses.replace(launch, perturb=seed)
            _start(one, own, environment(deterministic=deterministic))
        return compare(launch, folders, perturbed=perturb, deterministic=deterministic)


def environment(
    *, deterministic: bool, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of a launch.

    No compiled program is shared through the persistent cache: on a GPU the second
    launch would be handed the kernels that the first one picked. GPU memory is taken
    as it is needed, so that a parent that holds some does not stop its launches.

    Example:
        >>> environment(deterministic=True, base={"XLA_FLAGS": "--a=1"})["XLA_FLAGS"]
        '--a=1 --xla_gpu_deterministic_ops=true'
    """
    changed = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **base}
    changed["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if deterministic:
        flags = [base.get("XLA_FLAGS", ""), _DETERMINISTIC]
        changed["XLA_FLAGS"] = " ".join(flags).strip()
    return changed


def _start(launch: Launch, folder: Path, env: dict[str, str]) -> None:
    """Trains in a process of its own, which leaves its recording in `folder`."""
    folder.mkdir()
    described = folder / "launch.json"
    described.write_text(json.dumps(dataclasses.asdict(launch)))
    command = [sys.executable, "-m", "churn_jax.studies.repeatability"]
    done = subprocess.run(
        [*command, str(described), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        # `package.module.DataError: sentence` is a sentence of ours.
        kind, colon, sentence = last[0].partition(": ")
        said = sentence if colon and " " not in kind else last[0]
        raise ValueError(f"a launch could not train: {said}")


def compare(
    launch: Launch,
    folders: list[Path],
    *,
    perturbed: bool = False,
    deterministic: bool = False,
) -> Drift:
    """What `record` left in the folders of two or more launches, pair by pair."""
    found = [Recording.load(folder) for folder in folders]
    pairs = tuple(itertools.combinations(range(len(found)), 2))
    distance = np.empty((len(found[0].steps), len(pairs)))
    for i, step in enumerate(found[0].steps):
        weights = [np.load(weights_file(folder, step)) for folder in folders]
        distance[i] = [_relative(weights[a], weights[b]) for a, b in pairs]
    checksums = np.stack([f.checksums for f in found])
    differ = np.flatnonzero(np.any(checksums != checksums[0], axis=0))
    logits = jnp.stack([f.logits for f in found])
    labels = jnp.asarray(found[0].labels)
    return Drift(
        launch=launch,
        perturbed=perturbed,
        deterministic=deterministic,
        steps=found[0].steps,
        pairs=pairs,
        distance=distance,
        first_difference=int(differ[0]) if len(differ) else None,
        digests=tuple(f.digest for f in found),
        churn=summarize_pairs(pairwise(metrics.churn, logits)),
        surrogate_churn=summarize_pairs(pairwise(metrics.surrogate_churn, logits)),
        accuracy=tuple(float(metrics.accuracy(run, labels)) for run in logits),
        updates_per_second=tuple((f.steps[-1] - 1) / f.seconds for f in found),
    )


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    """`||a - b|| / ||a||` in float64; a difference in the sign of a zero is none."""
    difference = a.astype(np.float64) - b
    return float(np.linalg.norm(difference) / np.linalg.norm(a.astype(np.float64)))


def table(drift: Drift) -> list[tuple[str, ...]]:
    """Rows `(update, smallest, median, largest)` over pairs; an exact zero is `0`."""

    def shown(value: float) -> str:
        return "0" if value == 0.0 else f"{value:.3g}"

    return [
        (f"{step:,}", *(shown(f(row)) for f in (np.min, np.median, np.max)))
        for step, row in zip(drift.steps, drift.distance)
    ]


def distance_plot(drift: Drift):
    """A Matplotlib figure: distance of the weights against updates, both axes log.

    Zeros have no logarithm: they are hollow circles on a line of their own at the
    bottom, marked `exactly 0`.
    """
    from matplotlib.figure import Figure

    steps, distance = np.array(drift.steps[1:]), drift.distance[1:]
    positive = distance[distance > 0]
    top = 10.0 if not positive.size else 10.0 * positive.max()
    lowest = 1e-8 if not positive.size else min(1e-8, positive.min())
    floor = lowest / 30
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for column in distance.T:
        above = column > 0
        values = np.where(above, column, np.nan)
        axes.plot(steps, values, "o-", color="#0072B2", alpha=0.6, markersize=4)
        axes.plot(
            steps[~above],
            np.full(np.sum(~above), floor),
            "o",
            markerfacecolor="none",
            markeredgecolor="#D55E00",
            clip_on=False,
        )
    axes.set(xscale="log", yscale="log", ylim=(floor, top), xlabel="updates")
    axes.set_ylabel("relative distance of the weights, $L_2$")
    ticks = [10.0**e for e in range(int(np.ceil(np.log10(lowest))), 2, 2)]
    labels = [rf"$10^{{{round(np.log10(t))}}}$" for t in ticks if t <= top]
    axes.set_yticks([floor, *ticks[: len(labels)]], ["exactly 0", *labels], minor=False)
    axes.minorticks_off()
    axes.axhline(floor * 3, color="0.8", linewidth=0.8, linestyle="--")
    what = "one flipped bit" if drift.perturbed else "nothing changed"
    axes.set_title(f"{len(drift.digests)} launches, {what}: every pair", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def record_of(drift: Drift) -> dict[str, Any]:
    """Everything as JSON values, with what the numbers depend on."""
    numbers: dict[str, Any] = dataclasses.asdict(drift)
    for name in ("churn", "surrogate_churn"):
        given = getattr(drift, name)._asdict().items()
        plain = {k: np.asarray(v).item() for k, v in given}
        numbers[name] = {k: None if np.isnan(v) else v for k, v in plain.items()}
    numbers["distance"] = drift.distance.tolist()
    return {
        "repeats": drift.repeats,
        **numbers,
        "xla_flags": environment(deterministic=drift.deterministic).get("XLA_FLAGS"),
        "hardware": hardware(),
        "versions": versions(),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def write(drift: Drift, folder: Path) -> dict[str, Path]:
    """Writes `repeatability.json`, `table.md` and `distance.png`; their paths."""
    rows = [("update", "smallest", "median", "largest"), ("---:",) * 4, *table(drift)]
    plot = io.BytesIO()
    distance_plot(drift).savefig(plot, format="png", dpi=120)
    contents = {
        "repeatability.json": json.dumps(record_of(drift), indent=2) + "\n",
        "table.md": "".join(f"| {' | '.join(row)} |\n" for row in rows),
        "distance.png": plot.getvalue(),
    }
    return write_files(folder, contents)

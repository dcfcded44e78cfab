"""Whether this machine repeats a training: one run in several processes, compared.

The everything-fixed cell of the reproducibility paper's Table 6: initialisation, order
and data are the same, so what differs between launches is the machine. Each launch is a
process of its own that compiles for itself, because slots of one launch share kernels.
"""

import dataclasses
import datetime
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from churn_compare.array_files import replace_file, write_file
from churn_jax import metrics
from churn_jax.configuration.codec import from_json, to_json
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import Seeds
from churn_jax.data import Dataset
from churn_jax.metrics import pairwise, summarize_pairs
from churn_jax.metrics.pair_summaries import PairSummary
from churn_jax.setting_checks import check_least
from churn_jax.studies.folder import hardware, versions
from churn_jax.studies.inputs import Inputs, StudyInputs
from churn_jax.training import checkpoint
from churn_jax.training.partition import fetch
from churn_jax.training.run import Run
from churn_jax.training.session import open_session, trained_of
from churn_jax.training.step import make_step

# XLA's own description: run-to-run determinism; excludes operations that are not
# deterministic and switches autotuning off, which picks kernels by their speed.
_DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
# Updates dispatched before the loop waits for the last of them.
_IN_FLIGHT = 256


@jax.jit
def checksum(tree: PyTree) -> jax.Array:
    """A uint32 over the bits of all leaves, computed where they lie.

    A change of one weight always changes it; changes of several go unseen once in four
    thousand million times.
    """
    each = enumerate(map(checkpoint.checksum, jax.tree.leaves(tree)))
    return sum((jnp.uint32(2 * n + 1) * bits for n, bits in each), jnp.uint32(0))


@dataclasses.dataclass(frozen=True)
class Launch:
    """The training of one launch: one run of one row of a study, every seed fixed."""

    config: StudyConfig  # the study
    row: str = ""  # name of the row; empty is the study's baseline
    # number of updates. A run longer than the study's own stretches its schedule, so
    # that the learning rate does not end at zero early.
    updates: int = 100

    def __post_init__(self):
        """Refuses rows that learn or start from another row, and rates per replica."""
        check_least("updates", self.updates, 1)
        spec = self.spec
        dataclasses.replace(spec.config(self.config.train), replicas=1, seed_numbers=())
        if spec.method.needs_teacher or spec.taught or spec.start:
            why = f"starts from {spec.start}" if spec.start else "learns from a teacher"
            raise ValueError(f"{spec.name} {why}; launches compare rows without one")

    @property
    def spec(self) -> MethodSpec:
        """The row."""
        return self.config.spec(self.row or self.config.baseline)

    def opened(self) -> tuple[Run, Inputs]:
        """The engine's run, one replica as long as the study's or as `updates`."""
        study = StudyInputs(self.config)
        if not isinstance(study.dataset, Dataset):
            raise ValueError(
                "launches are compared on a data set in memory, not on a stream or on "
                f"clicks; got {self.config.data.name}"
            )
        run, inputs = study.run(self.spec), study.of(self.spec)
        train, per_epoch = run.config, run.steps_per_epoch(len(inputs.dataset.train))
        augment = "off" if train.seeds.augment == "off" else "fixed"
        train = dataclasses.replace(
            train,
            replicas=1,
            seed_numbers=(),
            epochs=max(train.epochs, -(-self.updates // per_epoch)),
            seeds=Seeds(train.seeds.base, "fixed", "fixed", augment, "fixed"),
            weights="last",
        )
        return dataclasses.replace(run, config=train), inputs


class Recording(NamedTuple):
    """The recording of one launch."""

    checksums: np.ndarray  # [updates + 1] uint32, of the weights after every update
    weights: np.ndarray  # all final weights in one vector
    logits: np.ndarray  # [N, C] on the test split, from the final weights
    labels: np.ndarray
    seconds: float  # of the updates after the first, which compiles

    def save(self, path: Path) -> None:
        """Writes one file of arrays."""
        with replace_file(path) as file:
            np.savez(file, **self._asdict())


def record(launch: Launch) -> Recording:
    """Trains as `launch` says.

    The engine's compiled step is called once per update, from the engine's own initial
    state and inputs: the weights are those of `churn_jax.training.train`.
    """
    run, (dataset, mean, std) = launch.opened()
    session = open_session(run, dataset, mean=mean, std=std)
    (part,) = session.parts
    step, state, inputs = make_step(part.program), part.state, part.inputs(0)
    checksums: list[Any] = [checksum(state.params)]
    began = time.perf_counter()
    for done in range(launch.updates):
        epoch, position = divmod(done, session.steps_per_epoch)
        if done and position == 0:
            inputs = part.inputs(epoch)
        state = step(state, inputs, (), *session.data)
        checksums.append(checksum(state.params))
        if done % _IN_FLIGHT == 0:
            jax.block_until_ready(checksums[-1])
        if done == 0:
            began = time.perf_counter()
    numbers = np.array(jax.device_get(checksums), np.uint32)
    seconds = time.perf_counter() - began
    trained = trained_of(session, [state], seconds=seconds)
    if stopped := trained.stopped:
        raise ValueError(
            f"training diverged at update {stopped[0].step}; nothing to compare"
        )
    leaves = jax.tree.leaves(fetch(trained.params))
    weights = np.concatenate([np.ravel(x).astype(np.float32) for x in leaves])
    logits = trained.predict(dataset.test)[0]
    return Recording(numbers, weights, logits, dataset.test.labels, seconds)


@dataclasses.dataclass(frozen=True)
class Repetition:
    """How the launches of one run differ."""

    # the first update after which the weights of two launches differ (0: they began
    # differently), or None
    first_difference: int | None
    digests: tuple[str, ...]  # sha256 of each launch's final weights
    # the largest `||w_a - w_b||_2 / ||w_a||_2` of two launches' final weights; 0.0 only
    # where all bits agree but for the sign of zeros
    distance: float
    churn: PairSummary  # over all pairs, on the test split
    surrogate_churn: PairSummary  # the same with alpha = 1
    accuracy: tuple[float, ...]  # accuracy of each launch
    # rate of each launch after compilation; None if unknown
    updates_per_second: tuple[float | None, ...]

    @property
    def repeats(self) -> bool:
        """True if all launches agree bit by bit, after every update and in the end."""
        return self.first_difference is None and len(set(self.digests)) == 1


def measure(
    launch: Launch,
    count: int,
    *,
    deterministic: bool = False,
    on_launch: Callable[[int], None] = lambda number: None,
) -> Repetition:
    """Runs `count` launches one after the other, each in a process of its own."""
    if count < 2:
        raise ValueError(f"at least two launches can be compared; got {count}")
    # No compiled program is shared through the persistent cache: on a GPU the second
    # launch would be handed the kernels that the first one picked. GPU memory is taken
    # as it is needed, so that a parent that holds some does not stop its launches.
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    env["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    env["PYTHONPATH"] = os.pathsep.join(sys.path)  # where `FILE.py:name` was found
    if deterministic:
        env["XLA_FLAGS"] = f"{env.get('XLA_FLAGS', '')} {_DETERMINISTIC}".strip()
    found = []
    with tempfile.TemporaryDirectory(prefix="launches-") as folder:
        for number in range(count):
            on_launch(number)
            path = Path(folder) / f"{number}.npz"
            _start(launch, path, env)
            with np.load(path) as arrays:
                found.append(Recording(*(arrays[name] for name in Recording._fields)))
    return compare(found)


def _start(launch: Launch, path: Path, env: Mapping[str, str]) -> None:
    """Trains in a process of its own, which leaves its recording in a file."""
    command = [sys.executable, "-m", "churn_jax.studies.repeatability", str(path)]
    done = subprocess.run(
        command,
        input=json.dumps(to_json(launch)),
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


def compare(found: Sequence[Recording]) -> Repetition:
    """Compares the recordings of two or more launches, pair by pair."""
    checksums = np.stack([one.checksums for one in found])
    differ = np.flatnonzero(np.any(checksums != checksums[0], axis=0))
    pairs = itertools.combinations([f.weights.astype(np.float64) for f in found], 2)
    norm, labels = np.linalg.norm, jnp.asarray(found[0].labels)
    logits = jnp.stack([one.logits for one in found])
    return Repetition(
        first_difference=int(differ[0]) if len(differ) else None,
        digests=tuple(hashlib.sha256(f.weights.tobytes()).hexdigest() for f in found),
        distance=max(float(norm(a - b) / norm(a)) for a, b in pairs),
        churn=summarize_pairs(pairwise(metrics.churn, logits)),
        surrogate_churn=summarize_pairs(pairwise(metrics.surrogate_churn, logits)),
        accuracy=tuple(float(metrics.accuracy(run, labels)) for run in logits),
        updates_per_second=tuple(
            float((len(f.checksums) - 2) / f.seconds) or None for f in found
        ),
    )


def write(found: Repetition, launch: Launch, folder: Path) -> Path:
    """Writes everything with what the numbers depend on; returns the file."""
    record: dict[str, Any] = {
        "repeats": found.repeats,
        **dataclasses.asdict(found),
        "row": launch.row or launch.config.baseline,
        "updates": launch.updates,
        "study": launch.config,
        "hardware": hardware(),
        "versions": versions(),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    for name in ("churn", "surrogate_churn"):
        numbers = {k: np.asarray(v).item() for k, v in record[name]._asdict().items()}
        record[name] = {k: None if np.isnan(v) else v for k, v in numbers.items()}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json(record), indent=2)
    return write_file(folder / "repeatability.json", text + "\n")


if __name__ == "__main__":
    record(from_json(Launch, json.load(sys.stdin))).save(Path(sys.argv[1]))

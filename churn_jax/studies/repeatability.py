"""One launch of a training run whose every seed is fixed, recorded weight by weight.

    python -m churn_jax.studies.repeatability UPDATES
    python -m churn_jax.studies.repeatability LAUNCH.json FOLDER

Prints a fingerprint of the final weights. Run it twice: equal fingerprints mean that
this machine repeats a run bit by bit. What the hardware adds must be measured across
launches, because slots of one launch share kernels. `churn_jax.studies.launches` starts
several and compares what they leave in their folders.
"""

import dataclasses
import hashlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from churn_compare.array_files import replace_file, write_file
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import Seeds
from churn_jax.data import Dataset, StreamingDataset
from churn_jax.setting_checks import check_least
from churn_jax.studies.inputs import Inputs, load_inputs
from churn_jax.studies.presets import preset
from churn_jax.training.partition import fetch, place
from churn_jax.training.predictions import make_predict, placed, predict_split
from churn_jax.training.replicas import make_step
from churn_jax.training.run import Run
from churn_jax.training.session import Session, open_session
from churn_jax.training.state import TrainState


def digest(tree: PyTree) -> str:
    """sha256 over the bytes of every leaf, as 64 hexadecimal digits."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(tree)):
        total.update(np.ascontiguousarray(leaf).tobytes())
    return total.hexdigest()


@jax.jit
def checksum(tree: PyTree) -> jax.Array:
    """A uint32 over the bits of all float32 leaves, computed where they lie.

    `sum_i (2i + 1) bits_i mod 2^32`: an integer sum, so its order cannot matter, and
    with odd factors, so a change of one weight always changes it. Changes of several
    weights go unseen once in four thousand million times.
    """
    total, start = jnp.uint32(0), 0
    for leaf in jax.tree.leaves(tree):
        bits = jax.lax.bitcast_convert_type(leaf.astype(jnp.float32), jnp.uint32)
        place_of = start + jax.lax.iota(jnp.uint32, leaf.size)
        total += jnp.sum((2 * place_of + 1) * bits.reshape(-1), dtype=jnp.uint32)
        start += leaf.size
    return total


def flip_last_bit(tree: PyTree, seed: int) -> PyTree:
    """Host arrays like `tree` with the last bit of one non-zero weight flipped.

    A change of one unit in the last place, about 1e-7 of that weight: what another
    order of summation does to a number on its way. Zeros (biases before training) are
    left out, since their neighbours are denormal and rounded away.
    """
    leaves, treedef = jax.tree.flatten(jax.device_get(tree))
    candidates = [np.flatnonzero(leaf) for leaf in leaves]
    total = sum(map(len, candidates))
    if total == 0:
        raise ValueError("no weight differs from zero, so none can be perturbed")
    chosen = int(np.random.default_rng(seed).integers(total))
    for i, places in enumerate(candidates):
        if chosen < len(places):
            bits = np.array(leaves[i], np.float32)  # a copy
            bits.reshape(-1).view(np.uint32)[places[chosen]] ^= 1
            leaves[i] = bits
            break
        chosen -= len(places)
    return treedef.unflatten(leaves)


# Updates dispatched before the loop waits for the last of them.
_IN_FLIGHT = 256


@dataclasses.dataclass(frozen=True)
class Launch:
    """What one launch trains: one run of one row of a preset, every seed fixed.

    Attributes:
        preset: see `churn_jax.studies.preset`.
        method: name of the row; empty is the preset's baseline.
        updates: how many are made. A run longer than the preset's own stretches the
            preset's schedule, so that the learning rate does not end at zero early.
        data: a TFDS name or a path to an `.npz` instead of the preset's data.
        data_dir: where TFDS keeps prepared sets.
        model: instead of the preset's network.
        batch_size: instead of the preset's; 0 keeps it.
        perturb: None, or the number that draws which single weight has its last bit
            flipped before the first update.
    """

    preset: str = "digits"
    method: str = ""
    updates: int = 100
    data: str = ""
    data_dir: str | None = None
    model: str = ""
    batch_size: int = 0
    perturb: int | None = None

    def __post_init__(self):
        """Checks what needs no preset."""
        check_least("updates", self.updates, 1)
        if self.batch_size < 0:
            raise ValueError(f"batch_size must be at least 1; got {self.batch_size}")

    def study(self) -> tuple[StudyConfig, MethodSpec]:
        """The preset with what the launch replaces, and the row that is trained."""
        config = preset(self.preset)
        source, network, train = config.data, config.model, config.train
        if self.data:
            source = dataclasses.replace(source, name=self.data)
        if self.data_dir:
            source = dataclasses.replace(source, data_dir=self.data_dir)
        if self.model and self.model != network.name:
            network = dataclasses.replace(
                network, name=self.model, features=(), init=""
            )
        if self.batch_size:
            train = dataclasses.replace(train, batch_size=self.batch_size)
        config = dataclasses.replace(config, data=source, model=network, train=train)
        spec = config.spec(self.method or config.baseline)
        if spec.method.needs_teacher:
            raise ValueError(
                f"{spec.name} learns from a teacher; launches compare rows without one"
            )
        spec.groups(network, num_classes=2)  # complains about an unknown network
        return config, spec

    def run(self, dataset: Dataset) -> Run:
        """The engine's run: one replica, as long as the preset's or as `updates`."""
        config, spec = self.study()
        train = spec.config(config.train)
        per_epoch = max(len(dataset.train) // train.batch_size, 1)
        augment = "off" if train.seeds.augment == "off" else "fixed"
        train = dataclasses.replace(
            train,
            replicas=1,
            seed_numbers=(),
            epochs=max(train.epochs, -(-self.updates // per_epoch)),
            seeds=Seeds(train.seeds.base, "fixed", "fixed", augment, "fixed"),
        )
        groups = spec.groups(config.model, dataset.num_classes)
        return Run(spec.name, spec.method, groups, train)

    def load(self) -> Dataset:
        """The data of the preset, or what replaces it."""
        source = self.study()[0].data
        dataset = load_inputs(source, source.train_size).dataset
        if isinstance(dataset, StreamingDataset):
            raise ValueError(
                f"launches are compared on data that fit in memory; {source.name} is "
                "streamed"
            )
        return dataset


@dataclasses.dataclass(frozen=True)
class Recording:
    """What one launch did."""

    steps: tuple[int, ...]  # updates after which weights were kept; the first is 0
    checksums: np.ndarray  # [updates + 1] uint32, of the weights after every update
    digest: str  # sha256 of the final weights
    logits: np.ndarray  # [N, C] on the test split, from the final weights
    labels: np.ndarray
    seconds: float  # of the updates after the first, which compiles

    def save(self, folder: Path) -> None:
        """Writes everything but the weights, which `record` has written."""
        with replace_file(folder / "launch.npz") as file:
            np.savez(file, **dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Recording":
        """Reads what `save` wrote."""
        with np.load(folder / "launch.npz") as found:
            return cls(
                steps=tuple(int(s) for s in found["steps"]),
                checksums=found["checksums"],
                digest=str(found["digest"]),
                logits=found["logits"],
                labels=found["labels"],
                seconds=float(found["seconds"]),
            )


def log_spaced(updates: int) -> tuple[int, ...]:
    """0, then 1, 2, 5, 10, 20, 50, ... up to `updates`, which is always the last.

    Example:
        >>> log_spaced(30)
        (0, 1, 2, 5, 10, 20, 30)
    """
    steps, decade = [0], 1
    while decade <= updates:
        steps += [k * decade for k in (1, 2, 5) if k * decade <= updates]
        decade *= 10
    return tuple(sorted({*steps, updates}))


def weights_file(folder: Path, step: int) -> Path:
    """Where `record` keeps the weights after `step` updates."""
    return folder / f"{step:09d}.npy"


def record(launch: Launch, folder: Path | None = None) -> Recording:
    """Trains as `launch` says and keeps the weights after log-spaced updates.

    The engine's compiled step is called once per update, from the engine's own initial
    state and inputs: the weights are those of `churn_jax.training.train`.
    """
    dataset = launch.load()
    run = launch.run(dataset)
    inputs = Inputs.of(dataset)
    session = open_session(
        run,
        dataset,
        directory=None,
        teacher=None,
        mean=inputs.mean,
        std=inputs.std,
    )
    (part,) = session.parts
    state = part.state
    if launch.perturb is not None:
        params = flip_last_bit(fetch(state.params), launch.perturb)
        state = dataclasses.replace(
            state, params=place(params, session.program.mesh, session.program.slots)
        )
    steps = log_spaced(launch.updates)
    state, checksums, seconds = _updates(session, state, steps, folder)
    stopped = int(fetch(state.stopped_step)[0])
    if stopped >= 0:
        raise ValueError(f"training diverged at update {stopped}; nothing to compare")
    logits = predict_split(
        make_predict(session.program, run.method),
        [(state.params, state.model_state)],
        placed(dataset.test.images, session.program),
        session.program.mesh,
        batch_size=run.config.eval_batch_size,
    )
    recording = Recording(
        steps=steps,
        checksums=checksums,
        digest=digest(fetch(state.params)),
        logits=np.asarray(fetch(logits))[0],
        labels=dataset.test.labels,
        seconds=seconds,
    )
    if folder is not None:
        recording.save(folder)
    return recording


def _updates(session: Session, state: TrainState, steps, folder: Path | None):
    """The state after the last of `steps`, all checksums, and the seconds it took."""
    step, began = make_step(session.parts[0].program), time.perf_counter()
    checksums: list[Any] = [checksum(state.params)]
    keep_weights(folder, 0, state)
    inputs = None
    for done in range(steps[-1]):
        epoch, position = divmod(done, session.steps_per_epoch)
        if position == 0 or inputs is None:
            inputs = session.parts[0].inputs(epoch)
        state = step(state, inputs, (), session.images, session.labels)
        checksums.append(checksum(state.params))
        if done == 0:
            jax.block_until_ready(state)
            began = time.perf_counter()
        if done % _IN_FLIGHT == 0:
            jax.block_until_ready(checksums[-1])
        if done + 1 in steps:
            keep_weights(folder, done + 1, state)
    numbers = np.array(jax.device_get(checksums), np.uint32)
    return state, numbers, time.perf_counter() - began


def keep_weights(folder: Path | None, step: int, state: TrainState) -> None:
    """Writes all weights after `step` updates as one vector; no folder, no file."""
    if folder is None:
        return
    leaves = jax.tree.leaves(fetch(state.params))
    vector = np.concatenate([np.ravel(leaf).astype(np.float32) for leaf in leaves])
    # Not straight into the file: NumPy would not say why it could not be written.
    whole = io.BytesIO()
    np.save(whole, vector)
    write_file(weights_file(folder, step), whole.getvalue())


def _main(arguments: list[str]) -> None:
    first, *rest = arguments
    if not rest:
        print(record(Launch(updates=int(first))).digest)
        return
    launch = Launch(**json.loads(Path(first).read_text()))
    print(record(launch, Path(rest[0])).digest)


if __name__ == "__main__":
    _main(sys.argv[1:])

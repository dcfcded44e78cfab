"""`study.json` and the folders of a study's rows: what is there, does it fit."""

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from itertools import count, product
from pathlib import Path
from typing import Any

import jax

from churn_compare.store import INDEX, PredictionsError, is_stored, shard_folder
from churn_jax import __version__
from churn_jax.configuration import differences, from_json, replaced, to_json
from churn_jax.configuration.codec import FREE, in_words, without
from churn_jax.configuration.network import ModelConfig, data_name
from churn_jax.configuration.record import (
    DataRecord,
    LaunchRecord,
    RowRecord,
    StudyError,
    StudyRecord,
    SweepRecord,
    read_record,
    write_record,
)
from churn_jax.configuration.rows import MethodSpec, averaged_name
from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import OPTIMIZERS
from churn_jax.data import DATASETS
from churn_jax.methods.base import METHODS
from churn_jax.models import MODELS
from churn_jax.reports.artefacts import TEST, Study
from churn_jax.reports.quantities import recorded_columns
from churn_jax.studies.grid import Program, together
from churn_jax.training.checkpoint import OtherConfiguration, jax_settings
from churn_jax.training.folder_lock import check_lock, free_name
from churn_jax.training.run import Trained


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    found = {"churn_jax": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in names}


def importable(config: StudyConfig) -> StudyConfig:
    """The study with names by which another process finds what it is made of.

    Raises:
        ValueError: a method's class cannot be found by its name, or a value could not
            be read again.
    """

    def network(model: ModelConfig) -> ModelConfig:
        return dataclasses.replace(model, name=MODELS.record_name(model.name))

    def row(spec: MethodSpec) -> MethodSpec:
        METHODS.find(METHODS.record_name(type(spec.method)))
        train = ((p, rule(v) if p == "optimizer.name" else v) for p, v in spec.train)
        return dataclasses.replace(spec, train=tuple(train))

    rule = OPTIMIZERS.record_name
    changes = [
        ("data.name", DATASETS.record_name(config.data.name)),
        ("columns", recorded_columns(config.columns)),
        ("train.optimizer.name", rule(config.train.optimizer.name)),
        ("methods", tuple(map(row, config.methods))),
    ]
    found = replaced(config, changes).with_networks(network)
    return from_json(StudyConfig, to_json(found))


def hardware() -> str:
    """The machine in words: devices, processor, cores."""
    devices = jax.devices()
    kinds = sorted({d.device_kind for d in devices})
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        models = (x.split(":")[1].strip() for x in lines if "model name" in x)
        processor = next(models, processor)
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count()
    return f"{len(devices)} x {', '.join(kinds)}; host {processor}, {cores} cores"


def read_study(folder: Path) -> StudyRecord:
    """The record of the study in a folder."""
    return read_record(Path(folder) / "study.json")


# Files that say that something was trained.
_LEFT = (
    f"methods/*/{TEST}",
    f"methods/*/{shard_folder(TEST)}/{INDEX}",
    "methods/*/checkpoints/*",
    "programs/*/checkpoints/*",
)


def continued(path: Path, record: StudyRecord) -> StudyRecord:
    """The record with what earlier launches into the folder trained."""
    way = "use another folder (--out, out=) or start again (--fresh, fresh=True)"
    if not path.exists():
        return record
    try:
        old = read_record(path)
    except StudyError as error:
        raise StudyError(f"{error}; {way}") from error
    out = path.parent
    if not old.methods and not any(any(out.glob(pattern)) for pattern in _LEFT):
        return record  # a launch that failed at once does not bind later ones
    what = "study" if record.sweep is None else "sweep"

    def refuse(holds: str, hint: str = way) -> None:
        raise StudyError(f"{out} holds {holds}; {hint}")

    if (old.sweep is None) != (record.sweep is None):
        kind = "a study" if old.sweep is None else "a sweep"
        read = f"`churn-jax report {out}` reads it"
        refuse(f"another kind of study, {kind}", f"{read}; use another folder")
    there, here = old.data.fingerprint, record.data.fingerprint
    if there != here:
        refuse(
            f"a {what} of other data (fingerprint {there[:12]} there, {here[:12]} here)"
        )
    if changed := differences(old.launch.settings, record.launch.settings):
        refuse(
            f"a {what} trained with other settings of JAX ({in_words(changed)}), which "
            "would give other numbers from here on",
            f"set {changed[0].partition(':')[0].upper()} as it was, or {way}",
        )
    free = {*FREE, "methods", "baseline"}
    a, b = (without(to_json(r.config), free) for r in (old, record))
    if changed := differences(a, b):
        refuse(f"a {what} with other settings ({in_words(changed)})")
    launch = old.launch if old.methods else record.launch
    record = dataclasses.replace(record, methods=old.methods, launch=launch)
    if record.sweep is None or old.sweep is None:
        return record
    rows = {row.name: row for row in old.config.methods}
    for row in record.config.methods:
        there = rows.setdefault(row.name, row)
        if changed := differences(without(to_json(there)), without(to_json(row))):
            refuse(f"{row.name} with other settings ({in_words(changed)})")
    sweep = record.sweep.after(old.sweep)
    config = dataclasses.replace(
        record.config,
        methods=tuple(rows.values()),
        baseline=sweep.baseline or record.config.baseline,
    )
    return dataclasses.replace(record, config=config, sweep=sweep)


class StudyFolder:
    """`study.json` and the folders of the rows; `record` is what is written next."""

    def __init__(
        self,
        out: Path,
        config: StudyConfig,
        dataset,
        command: str = "",
        sweep: SweepRecord | None = None,
        selected: tuple[str, ...] | None = None,
    ):
        date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        devices, settings = tuple(map(str, jax.devices())), jax_settings()
        launch = LaunchRecord(command, date, hardware(), devices, versions(), settings)
        facts = (data_name(dataset.name), dataset.fingerprint, dataset.num_classes)
        sizes = map(len, (dataset.train, dataset.validation, dataset.test))
        data = DataRecord(dataset.name, *facts, *sizes)
        record = StudyRecord(config, data, launch, sweep=sweep, selected=selected)
        self.out, self.path, self.config = out, out / "study.json", config
        self.record, self.launch = continued(self.path, record), launch
        self._finished: dict[str, bool] = {}

    def method_dir(self, name: str) -> Path:
        """Where a row's files are."""
        return self.out / "methods" / name

    def directory(self, program: Program) -> Path:
        """Where the checkpoints of rows that are trained together are."""
        if len(program.rows) == 1:
            return self.method_dir(program.name)
        return self.out / "programs" / program.name

    def plan(self, rows: Sequence[MethodSpec]) -> list[Program]:
        """The programs that train the rows, in their order.

        Points of a sweep are trained together. A checkpoint holds the rows it was begun
        with, so an unfinished program goes on as it is, and only points that are in
        none make new ones.
        """
        config, sweep = self.config, self.record.sweep
        wanted = {row.name: row for row in rows}

        def program(name: str, rows: Sequence[MethodSpec]) -> Program:
            epochs = rows[0].config(config.train).epochs * rows[0].method.members
            replicas = config.train.replicas
            return Program(name, tuple(rows), replicas, epochs * len(rows))

        if sweep is None:
            return [program(name, [row]) for name, row in wanted.items()]
        known = dict(sweep.programs)
        taught = {name for row in rows for name in row.dependencies}
        alike = wanted.keys() - taught  # a row that teaches is trained alone
        begun = {n: rows for n, rows in known.items() if alike >= set(rows)}
        taken = {name for names in begun.values() for name in names}
        alone = [
            row
            for row in rows
            if row.name not in taken and (row.name in taught or self.finished(row))
        ]
        plan = [program(row.name, [row]) for row in alone]
        plan += [program(n, [wanted[x] for x in names]) for n, names in begun.items()]
        rest = [r for r in rows if r.name not in taken and r not in alone]
        axes = {point.name: point.axis for point in sweep.points}
        for part in together(config, rest, sweep.points_per_program):
            name = part[0].name
            if len(part) > 1:  # of which the baseline may be on no axis
                axis = next(filter(None, (axes[row.name] for row in part)))
                names = (f"{axis}-{n}" if n > 1 else axis for n in count(1))
                name = next(one for one in names if one not in known)
                known[name] = tuple(row.name for row in part)
            plan.append(program(name, part))
        sweep = dataclasses.replace(sweep, programs=known)
        self.record = dataclasses.replace(self.record, sweep=sweep)
        return plan

    def finished(self, spec: Any) -> bool:
        """True if the row was trained as it is now and its predictions are there."""
        if spec.name in self._finished:  # looking reads all predictions
            return self._finished[spec.name]
        names = [spec.name]
        if spec.config(self.config.train).ema_decay:
            names.append(averaged_name(spec.name))
        splits = ("validation", "test") if self.record.data.validation else ("test",)
        kept, files = Study(self.out, self.record, ()), list(product(names, splits))
        row = self.record.row(spec.name)
        there = row is not None and not self.record.outdated(row)
        there = there and (not row.files or row.files == _files(self.config, spec))
        found = there and all(is_stored(kept.file(*file)) for file in files)
        for file in files if found else ():
            try:
                kept.predictions(*file)
            except PredictionsError as error:  # no reason to train again
                way = "remove it, and the same command makes it again"
                raise PredictionsError(f"{error}; {way}") from error
        self._finished[spec.name] = found
        return found

    def trained(self, spec: Any, train: Callable[[], Trained], on_note) -> Trained:
        """The result of `train`; results of other settings of the row are set aside."""
        # One process alone may rename what the others are about to read.
        alone = jax.process_count() == 1
        row, exists = self.record.row(spec.name), self.method_dir(spec.name).exists()
        if alone and exists and row is not None and self.record.outdated(row):
            self._set_aside(spec.name, on_note)
        try:
            return train()
        except OtherConfiguration:
            # The study's settings agree, so this is a row whose own settings or
            # teacher were changed before it was finished.
            if not alone:
                raise
        self._set_aside(spec.name, on_note)
        return train()

    def _set_aside(self, name: str, on_note: Callable[[str], None]) -> None:
        """Renames what an earlier setting of the row left; nothing is deleted."""
        aside = free_name(self.method_dir(f"{name}.before"))
        self.method_dir(name).rename(aside)
        averaged = self.method_dir(averaged_name(name))
        if averaged.exists():
            averaged.rename(free_name(averaged.with_name(f"{averaged.name}.before")))
        kept = [r for r in self.record.methods if name not in (r.name, r.of)]
        self.record = dataclasses.replace(self.record, methods=tuple(kept))
        self.write()
        on_note(
            f"{name} is trained again, because its settings changed; the results of "
            f"the earlier ones are in {aside}"
        )

    def write(self, *rows: RowRecord) -> None:
        """Writes `study.json`, with the records of rows that this launch finished."""
        check_lock(self.out)
        self.record = self.record.with_rows(*rows)
        if rows:
            self.record = dataclasses.replace(self.record, launch=self.launch)
        write_record(self.path, self.record)


def row_records(
    config: StudyConfig, program: Program, trained: Trained
) -> tuple[RowRecord, ...]:
    """The rows that one training gives; those of averaged weights come last."""
    count = len(program.rows)
    replicas = trained.run.config.replicas // count

    def record(spec: MethodSpec, first: int) -> RowRecord:
        stopped = (
            dataclasses.replace(one, replica=one.replica - first)
            for one in trained.stopped
            if 0 <= one.replica - first < replicas
        )
        return RowRecord(
            name=spec.name,
            label=spec.label,
            spec=spec,
            dependencies=config.dependencies(spec),
            training_cost=_training_cost(config, spec),
            passes=_passes(config, spec),
            files=_files(config, spec),
            hardware=hardware(),
            seconds=round(trained.seconds / count, 3),
            compile_seconds=round(trained.compile_seconds / count, 3),
            parameters=trained.parameters,
            mapping=trained.program.mapping,
            stopped=tuple(stopped),
        )

    def averaged(row: RowRecord) -> RowRecord:
        name, label = averaged_name(row.name), f"{row.label}, EMA weights"
        unknown: Any = {"seconds": None, "compile_seconds": None}
        of = {"name": name, "label": label, "weights": "ema", "of": row.name}
        return dataclasses.replace(row, **of, **unknown)

    own = tuple(record(s, n * replicas) for n, s in enumerate(program.rows))
    return (*own, *map(averaged, own)) if trained.run.config.ema_decay else own


def _training_cost(config: StudyConfig, spec: MethodSpec, members: int = 0) -> float:
    """Networks trained, with those of its teachers; old models are deployed already.

    `members` is the number of networks that teach; 0 is all.
    """
    cost = float(members or _passes(config, spec))
    if spec.teacher is None:
        return cost
    teacher = config.spec(spec.teacher)
    return cost + _training_cost(config, teacher, spec.teaching.members)


def _passes(config: StudyConfig, spec: MethodSpec) -> int:
    """Passes that answer for all members: one network of MIMO answers for several."""
    model, count = spec.model or config.model, 0
    for network, size in spec.models or ((model, spec.method.members),):
        own = model if isinstance(network, str) else network
        mimo = own.sharing is not None and own.sharing.kind == "mimo"
        count += size // own.heads(size) if mimo and not spec.separate else size
    return count


def _files(config: StudyConfig, spec: MethodSpec) -> str:
    """A digest of the files of weights and logits that a row depends on, or empty."""
    files: list[Path] = []
    for row in (*config.dependencies(spec), spec):
        networks = (row.model or config.model, *(network for network, _ in row.models))
        for folder in filter(None, (getattr(n, "pretrained", "") for n in networks)):
            files += sorted(Path(folder).glob("*.safetensors"))
        if path := row.teaching.logits:
            files += [Path(path), *sorted(shard_folder(path).glob("*"))]
    digest = hashlib.sha256()
    for path in filter(Path.is_file, files):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files else ""

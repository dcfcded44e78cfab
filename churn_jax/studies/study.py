"""Trains every method of a study and leaves its artefacts in one folder."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax import __version__, data
from churn_jax.data import channel_statistics
from churn_jax.predictions import (
    Predictions,
    load_predictions,
    replace_file,
    save_predictions,
)
from churn_jax.studies.config import MethodSpec, StudyConfig, resolved
from churn_jax.training.checkpoint import OtherConfiguration, free_name
from churn_jax.training.loop import train
from churn_jax.training.run import Interrupted, Progress, Run, Trained

__all__ = ["StudyError", "hardware", "run_study", "versions"]


class StudyError(ValueError):
    """A study that cannot go on, in one sentence."""


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    found = {"churn_jax": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in names}


def hardware() -> str:
    """The machine in words: devices, processor, cores."""
    devices = jax.devices()
    kinds = sorted({d.device_kind for d in devices})
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            models = [x.split(":")[1].strip() for x in lines if "model name" in x]
        processor = models[0] if models else processor
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    cores = cores or os.cpu_count()
    return f"{len(devices)} x {', '.join(kinds)}; host {processor}, {cores} cores"


def _write_json(path: Path, value: Any) -> None:
    with replace_file(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value}
    parts = {}
    for key, part in value.items():
        parts |= _flat(part, f"{prefix}{key}.")
    return parts


# What may differ between two launches into one folder: where and how fast the study
# runs, not what it computes.
_FREE = (
    "train.mesh",
    "train.mapping",
    "train.steps_per_call",
    "train.eval_batch_size",
    "train.checkpoint_every_seconds",
    "data.data_dir",
    "data.manual_dir",
    "methods",
    "title",
)


class _Folder:
    """`study.json` and the folders of the methods."""

    def __init__(self, out: Path, config: StudyConfig, dataset, command: str):
        self.out, self.path, self.config = out, out / "study.json", config
        config_json = resolved(config)
        self.record = {
            "name": config.name,
            "title": config.title,
            "config": config_json,
            "versions": versions(),
            "devices": [str(d) for d in jax.devices()],
            "hardware": hardware(),
            "data": {
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "num_classes": dataset.num_classes,
                "train": len(dataset.train),
                "validation": len(dataset.validation),
                "test": len(dataset.test),
            },
            "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "command": command,
            "baseline": config.baseline,
            "replicas": config.train.replicas,
            "methods": [],
        }
        if self.path.exists():
            self._continue(config_json)

    def _continue(self, config: dict[str, Any]) -> None:
        try:
            old = json.loads(self.path.read_text())
            old_config, fingerprint = old["config"], old["data"]["fingerprint"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise StudyError(
                f"{self.path} is not a study's record ({error}); use another --out or "
                "--fresh"
            ) from error
        if not self._anything_trained(old):
            return  # a launch that failed at once: its mistakes bind nobody
        if fingerprint != self.record["data"]["fingerprint"]:
            raise StudyError(
                f"{self.out} holds a study of other data (fingerprint "
                f"{fingerprint[:12]} there, "
                f"{self.record['data']['fingerprint'][:12]} here); use another --out "
                "or --fresh"
            )
        a, b = _flat(old_config), _flat(config)
        changed = [
            f"{k}: {a.get(k)} there, {b.get(k)} here"
            for k in sorted({*a, *b})
            if a.get(k) != b.get(k) and not k.startswith(_FREE)
        ]
        if changed:
            raise StudyError(
                f"{self.out} holds a study with other settings ("
                f"{'; '.join(changed[:3])}); use another --out or --fresh"
            )
        self.record["methods"] = old.get("methods", [])

    def _anything_trained(self, record: dict[str, Any]) -> bool:
        if record.get("methods"):
            return True
        left = ("*/predictions.npz", "*/checkpoints/*")
        return any(any((self.out / "methods").glob(pattern)) for pattern in left)

    def method_dir(self, name: str) -> Path:
        return self.out / "methods" / name

    def finished(self, spec: MethodSpec) -> bool:
        """Whether the method was trained as it is now and its predictions are there."""
        entry = next((m for m in self.record["methods"] if m["name"] == spec.name), {})
        if entry.get("method") != resolved(spec.method):
            return False
        if entry.get("teacher") != self.teacher(spec):
            return False
        path = self.method_dir(spec.name) / "predictions.npz"
        if not path.exists():
            return False
        load_predictions(path)  # a damaged file is an error, not a reason to retrain
        return True

    def teacher(self, spec: MethodSpec) -> dict[str, Any] | None:
        """What taught the method: it is trained again when that changes."""
        if spec.teacher is None:
            return None
        teacher = self.config.spec(spec.teacher)
        return {
            "name": teacher.name,
            "method": resolved(teacher.method),
            "teacher": self.teacher(teacher),
        }

    def set_aside(self, name: str) -> Path:
        """Renames what an earlier setting of the method left; nothing is deleted."""
        source = self.method_dir(name)
        target = free_name(source.with_name(f"{name}.before"))
        source.rename(target)
        self.record["methods"] = [
            m for m in self.record["methods"] if m["name"] != name
        ]
        self.write()
        return target

    def write(self, entry: dict[str, Any] | None = None) -> None:
        if entry is not None:
            others = [m for m in self.record["methods"] if m["name"] != entry["name"]]
            order = [m["name"] for m in self.record["config"]["methods"]]
            self.record["methods"] = sorted(
                [*others, entry],
                key=lambda m: order.index(m["name"]) if m["name"] in order else 99,
            )
        _write_json(self.path, self.record)


def _coefficients(method) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        if isinstance(value, (float, np.ndarray)):
            found[field.name] = resolved(value)
    return found


def _entry(
    spec: MethodSpec, trained: Trained, cost: float, teacher: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "name": spec.name,
        "label": spec.label,
        "equation": spec.equation,
        "members": spec.method.members,
        "training_cost": cost,
        "inference_cost": spec.method.inference_cost,
        "coefficients": _coefficients(spec.method),
        "method": resolved(spec.method),
        "teacher": teacher,
        "seconds": round(trained.seconds, 3),
        "compile_seconds": round(trained.compile_seconds, 3),
        "parameters": trained.parameters,
        "mapping": trained.program.mapping,
        "stopped": [dataclasses.asdict(s) for s in trained.stopped],
    }


def _training_cost(config: StudyConfig, spec: MethodSpec) -> float:
    """Networks trained, in units of the baseline's one; a teacher's are counted."""
    own = float(spec.method.members)
    if spec.teacher is None:
        return own
    return own + _training_cost(config, config.spec(spec.teacher))


def run_study(
    config: StudyConfig,
    out: Path,
    *,
    only: tuple[str, ...] = (),
    command: str = "",
    on_start: Callable[[MethodSpec, bool], None] = lambda spec, finished: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda note: None,
    stop: threading.Event | None = None,
) -> Path:
    """Trains the methods of a study, teachers first; finished ones are kept.

    Args:
        config: the study.
        out: its folder; the same folder continues where it was left.
        only: names of methods to train, with their teachers; default all.
        command: recorded in `study.json`.
        on_start: called with each method and whether it is finished already.
        on_progress: called after every evaluation.
        on_note: called with sentences for the user.
        stop: when set, a checkpoint is written and `Interrupted` raised.

    Returns:
        `out`.

    Raises:
        StudyError: `out` holds another study.
        churn_jax.data.DataError: the data cannot be used.
        Interrupted: `stop` was set.
    """
    dataset = data.load(
        config.data.name,
        data_dir=config.data.data_dir,
        manual_dir=config.data.manual_dir,
        train_size=config.data.train_size,
        validation=config.data.validation,
    )
    if len(dataset.validation) == 0:
        raise StudyError("a study needs a validation split; set --data.validation")
    selected = config.select(only)
    moments = channel_statistics(dataset.train.images)
    mean = tuple(float(x) for x in np.ravel(moments.mean))
    std = tuple(float(x) for x in np.ravel(moments.std))
    primary = jax.process_index() == 0
    out.mkdir(parents=True, exist_ok=True)
    folder = _Folder(out, config, dataset, command)
    if primary:
        folder.write()
    trained: dict[str, Trained] = {}
    finished = {spec.name: folder.finished(spec) for spec in selected}

    def trained_method(spec: MethodSpec) -> Trained:
        """Trains, or restores what was trained before."""
        if spec.name in trained:
            return trained[spec.name]
        run = Run(
            name=spec.name,
            method=spec.method,
            groups=spec.groups(config.model, dataset.num_classes),
            config=config.train,
            stream=0 if spec.teacher is None else 1,
        )
        arguments = {
            "directory": folder.method_dir(spec.name),
            "teacher": None if spec.teacher is None else teacher_of(spec.teacher),
            "mean": mean,
            "std": std,
            "on_progress": on_progress,
            "on_note": on_note,
            "stop": stop,
        }
        try:
            return train(run, dataset, **arguments)
        except OtherConfiguration:
            # The study's settings agree, so this is a method whose coefficients or
            # teacher were changed: what they gave before is kept under another name.
            if jax.process_count() > 1:
                raise
        aside = folder.set_aside(spec.name)
        on_note(
            f"{spec.name} is trained again, because its settings changed; the results "
            f"of the earlier ones are in {aside}"
        )
        return train(run, dataset, **arguments)

    def teacher_of(name: str) -> Trained:
        if name not in trained:
            trained[name] = trained_method(config.spec(name))
        return trained[name]

    teachers = {spec.teacher for spec in selected if not finished[spec.name]}
    for spec in selected:
        if stop is not None and stop.is_set():
            raise Interrupted(f"stopped before {spec.name}")
        on_start(spec, finished[spec.name])
        if finished[spec.name]:
            continue
        result = trained_method(spec)
        if spec.name in teachers:
            trained[spec.name] = result
        logits = result.predict(dataset.test.images)
        if primary:
            entry = _entry(
                spec, result, _training_cost(config, spec), folder.teacher(spec)
            )
            meta = {
                "method": spec.name,
                "study": config.name,
                "fingerprint": dataset.fingerprint,
                "split": "test",
                "stopped": entry["stopped"],
            }
            predictions = Predictions(
                dataset.test.ids, dataset.test.labels, logits, meta
            )
            save_predictions(
                folder.method_dir(spec.name) / "predictions.npz", predictions
            )
            folder.write(entry)
    return out

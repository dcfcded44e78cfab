"""`study.json` and the folders of a study's rows: what is there, does it fit."""

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax import __version__
from churn_jax.methods import Method
from churn_jax.methods.base import at_rest
from churn_jax.prediction_shards import INDEX, is_stored, load_stored, shards_beside
from churn_jax.predictions import replace_file
from churn_jax.reports.artefacts import TEST, VALIDATION
from churn_jax.studies.config import MethodSpec, StudyConfig, averaged_name, resolved
from churn_jax.studies.provenance import data_name, network_name
from churn_jax.training.checkpoint import free_name
from churn_jax.training.run import Trained

__all__ = [
    "StudyError",
    "StudyFolder",
    "changed_settings",
    "entry_of",
    "hardware",
    "surroundings",
    "versions",
]


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
    "data.threads",
    "data.workers",
    "methods",
    "evaluation",
    "columns",
    "updates",
    "published",
    "title",
    "notes",
    "changes",
)


def changed_settings(
    there: dict[str, Any], here: dict[str, Any], free: tuple[str, ...] = ()
) -> list[str]:
    """What two `resolved` studies compute otherwise: `path: value there, value here`.

    Args:
        there: of an earlier launch.
        here: of this one.
        free: beginnings of paths that may differ, besides those of where and how fast
            a study runs.
    """
    a, b = _flat(there), _flat(here)
    return [
        f"{k}: {a.get(k)} there, {b.get(k)} here"
        for k in sorted({*a, *b})
        if a.get(k) != b.get(k) and not k.startswith((*_FREE, *free))
    ]


def surroundings(dataset) -> dict[str, Any]:
    """Where, when and on what data a launch trains, for the record of its folder."""
    return {
        "versions": versions(),
        "devices": [str(d) for d in jax.devices()],
        "hardware": hardware(),
        "data": {
            "name": dataset.name,
            "title": data_name(dataset.name),
            "fingerprint": dataset.fingerprint,
            "num_classes": dataset.num_classes,
            "train": len(dataset.train),
            "validation": len(dataset.validation),
            "test": len(dataset.test),
        },
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
    }


# Settings that came after the first studies were recorded: an entry names them only
# where they say something.
_LATER = ("teaching", "classes", "class_share", "start", "keep", "old", "started")


class StudyFolder:
    """`study.json` and the folders of the methods."""

    def __init__(self, out: Path, config: StudyConfig, dataset, command: str):
        self.out, self.path, self.config = out, out / "study.json", config
        config_json = resolved(config)
        self.record: dict[str, Any] = {
            "name": config.name,
            "title": config.title,
            "network": network_name(config.model.name),
            "notes": list(config.notes),
            "changes": list(config.changes),
            "config": config_json,
            **surroundings(dataset),
            "command": command,
            "baseline": config.baseline,
            "published": config.published,
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
        if changed := changed_settings(old_config, config):
            raise StudyError(
                f"{self.out} holds a study with other settings ("
                f"{'; '.join(changed[:3])}); use another --out or --fresh"
            )
        self.record["methods"] = old.get("methods", [])

    def _anything_trained(self, record: dict[str, Any]) -> bool:
        if record.get("methods"):
            return True
        shards = shards_beside(TEST) / INDEX
        left = (f"*/{TEST}", f"*/{shards}", "*/checkpoints/*")
        return any(any((self.out / "methods").glob(pattern)) for pattern in left)

    def method_dir(self, name: str) -> Path:
        """Where a row's files are."""
        return self.out / "methods" / name

    def entry(self, name: str) -> dict[str, Any]:
        """What `study.json` says of a trained row; empty where there is none."""
        return next((m for m in self.record["methods"] if m["name"] == name), {})

    def outdated(self, spec: MethodSpec) -> bool:
        """Whether the row was trained before, but otherwise than it would be now."""
        entry = self.entry(spec.name)
        settings = self.settings(spec)
        # Committees were not recorded at first: those of such a row count as the same.
        models = settings.get("models")
        defaults = {"train": [], "models": models, "separate": False}
        return bool(entry) and any(
            entry.get(key, defaults.get(key)) != settings.get(key, defaults.get(key))
            for key in {*settings, *_LATER}
        )

    def finished(self, spec: MethodSpec) -> bool:
        """Whether the row was trained as it is now and its predictions are there."""
        if not self.entry(spec.name) or self.outdated(spec):
            return False
        paths = [
            self.method_dir(row["name"]) / file
            for row in self.rows_of(spec, {})
            for file in (VALIDATION, TEST)
        ]
        if not all(is_stored(path) for path in paths):
            return False
        for path in paths:
            load_stored(path)  # a damaged file is an error, no reason to retrain
        return True

    def settings(self, spec: MethodSpec) -> dict[str, Any]:
        """What decides a row's results: it is trained again when that changes."""
        teacher = None
        if spec.teacher is not None:
            taught_by = self.config.spec(spec.teacher)
            found = {"name": taught_by.name, **self.settings(taught_by)}
            # As recorded before rows could have a training or a network of their own.
            own = ("train", "train_size", "model", "models", "separate", *_LATER)
            teacher = {k: v for k, v in found.items() if v or k not in own}
        return {
            "method": resolved(spec.method),
            "teacher": teacher,
            "train": resolved(spec.train),
            "train_size": spec.train_size,
            "model": resolved(spec.model),
            "models": resolved(spec.models),
            "separate": spec.separate,
            **self._later_settings(spec),
        }

    def _later_settings(self, spec: MethodSpec) -> dict[str, Any]:
        """What rows could not always have, where this one has it."""
        fields = {f.name: f for f in dataclasses.fields(spec)}
        found = {
            name: resolved(getattr(spec, name))
            for name in _LATER
            if name in fields and not at_rest(spec, fields[name])
        }
        for kind, names in (("old", spec.teaching.old), ("started", (spec.start,))):
            rows = [self.config.spec(name) for name in names if name]
            if rows:
                found[kind] = [{"name": row.name, **self.settings(row)} for row in rows]
        return found

    def rows_of(
        self, spec: MethodSpec, entry: dict[str, Any]
    ) -> tuple[dict[str, Any], ...]:
        """The rows that one training gives: its own, and one of averaged weights.

        The second costs no training of its own; its entry names the first as `of`.
        """
        name, label = spec.name, spec.label
        own = {**entry, "name": name, "weights": "config"}
        if not spec.config(self.config.train).ema_decay:
            return (own,)
        averaged = {
            "name": averaged_name(name),
            "label": f"{label}, EMA weights",
            "weights": "ema",
            "of": name,
        }
        shared = {k: v for k, v in entry.items() if not k.endswith("seconds")}
        return own, {**shared, **averaged}

    def set_aside(self, name: str) -> Path:
        """Renames what an earlier setting of the method left; nothing is deleted.

        Returns:
            Where it is now; averaged weights' predictions are beside it.
        """
        source = self.method_dir(name)
        target = free_name(source.with_name(f"{name}.before"))
        source.rename(target)
        averaged = self.method_dir(averaged_name(name))
        if averaged.exists():
            averaged.rename(free_name(averaged.with_name(f"{averaged.name}.before")))
        self.record["methods"] = [
            m
            for m in self.record["methods"]
            if m["name"] != name and m.get("of") != name
        ]
        self.write()
        return target

    def write(self, entry: dict[str, Any] | None = None) -> None:
        """Writes `study.json`, with a row's new entry where one is given."""
        if entry is not None:
            others = [m for m in self.record["methods"] if m["name"] != entry["name"]]
            names = [m["name"] for m in self.record["config"]["methods"]]
            order = [n for name in names for n in (name, averaged_name(name))]
            self.record["methods"] = sorted(
                [*others, entry],
                key=lambda m: order.index(m["name"]) if m["name"] in order else 9999,
            )
        _write_json(self.path, self.record)


def _coefficients(method) -> dict[str, Any]:
    """Numbers of a method, without those at the value that means nothing."""
    found = {}
    for field in dataclasses.fields(method):
        value = getattr(method, field.name)
        neutral = getattr(Method, field.name, None)
        if isinstance(value, (float, np.ndarray)) and not np.all(value == neutral):
            found[field.name] = resolved(value)
    return found


def entry_of(
    spec: MethodSpec, trained: Trained, cost: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """A trained row as `study.json` holds it; `settings` are the folder's."""
    return {
        "name": spec.name,
        "label": spec.label,
        "equation": spec.equation,
        "members": spec.method.members,
        "training_cost": cost,
        "inference_cost": spec.method.inference_cost,
        "coefficients": _coefficients(spec.method),
        **settings,
        "seconds": round(trained.seconds, 3),
        "compile_seconds": round(trained.compile_seconds, 3),
        "parameters": trained.parameters,
        "mapping": trained.program.mapping,
        "stopped": [dataclasses.asdict(s) for s in trained.stopped],
    }

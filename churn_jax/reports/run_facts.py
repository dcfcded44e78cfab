"""Facts about a run, from the record that a study leaves."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from churn_compare.documents import Code, Facts, Fold, Section
from churn_jax.configuration.codec import to_json
from churn_jax.configuration.names import network_name, network_words
from churn_jax.configuration.record import DataRecord, StudyRecord


def page_facts(record: StudyRecord, runs: str) -> tuple[str, ...]:
    """Date, data, runs and hardware, for the line under a title."""
    launch = record.launch
    return launch.date, record.data.name, runs, launch.hardware


def run_section(record: StudyRecord, extra: Mapping[str, Any]) -> Section:
    """The last section of a page; `extra` has facts that only one kind of run has."""
    data, launch = record.data, record.launch
    shown = {
        "Command": launch.command,
        "Date": launch.date,
        "Hardware": launch.hardware,
        "Devices": ", ".join(launch.devices),
        "Versions": ", ".join(f"{k} {v}" for k, v in launch.versions.items()),
        "Data": ", ".join(filter(None, (data.name, *size_list(data)))),
        "Classes": data.num_classes,
        "Data fingerprint": data.fingerprint,
        **extra,
    }
    facts = Facts({name: str(value) for name, value in shown.items() if value})
    text = json.dumps(to_json(record.config), indent=2, ensure_ascii=False)
    fold = Fold("Configuration", [Code(text)])
    return Section("What was run", [facts, fold], detail="full")


def run_facts(record: StudyRecord) -> tuple[str, ...]:
    """Data, network, length and runs of a study in words."""
    data, config = record.data, record.config
    model = dataclasses.replace(config.model, name=network_name(config.model.name))
    length = f"{config.train.epochs} epochs"
    if (one_pass := config.train.one_pass) is not None:
        length = f"one pass in windows of {one_pass.window:,}"
    found = (
        ": ".join(filter(None, (data.title or data.name, ", ".join(size_list(data))))),
        network_words(model),
        length,
        f"{config.train.replicas} runs per method",
    )
    return tuple(filter(None, found))


def size_list(data: DataRecord) -> list[str]:
    """How many examples each split has: `1,200 train`."""
    sizes = {k: getattr(data, k) for k in ("train", "validation", "test")}
    return [f"{size:,} {split}" for split, size in sizes.items() if size is not None]

"""Folders of stream studies with made-up numbers, as `churn-jax stream` leaves them."""

import dataclasses
import json

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.record import (
    DataRecord,
    LaunchRecord,
    StreamRecord,
    StreamRowRecord,
)
from churn_jax.configuration.streams import (
    StreamConfig,
    StreamData,
    StreamSpec,
    StreamStudyConfig,
    TowerConfig,
)
from churn_jax.methods import ERM
from tests.reports.fake_study import merged

DIFFERENCES = ("relative_pd", "pd_1", "pd_2", "label_pd", "hamming")


def totals(log_loss, pd, loo=None, auc=None):
    """Of progressive validation; all prediction differences are `pd`."""
    runs = len(log_loss)
    loo = [pd] * runs if loo is None else loo
    auc = [0.75] * runs if auc is None else auc
    out = {"log_loss": list(log_loss), "auc": auc, "calibration": [1.0] * runs}
    for name in DIFFERENCES:
        out |= {name: pd, f"{name}_loo": list(loo)}
    return out


def write_row(folder, name, totals, curve=(), holdout=None, examples=1000):
    path = folder / "methods" / name
    path.mkdir(parents=True, exist_ok=True)
    result = {
        "examples": examples,
        "counted": examples,
        "seconds": 2.0,
        "parameters": 321,
        "stopped": [],
        "totals": totals,
        "curve": list(curve),
        "holdout": holdout or {},
    }
    (path / "result.json").write_text(json.dumps(result))


SPEC = {field.name for field in dataclasses.fields(StreamSpec)}


def write_record(folder, entries, planned=(), **facts):
    """`study.json`; `entries` maps finished rows to more keys of their entry."""
    rows = []
    for name in (*entries, *planned):
        spec = StreamSpec(name, name.replace("_", " "), ERM())
        row = to_json(StreamRowRecord(name, spec.label, spec, seconds=2.0))
        own = entries.get(name, {})
        row["spec"] |= {k: v for k, v in own.items() if k in SPEC}
        rest = {k: v for k, v in own.items() if k not in SPEC or k == "label"}
        rows.append(row | rest)
    config = StreamStudyConfig(
        "fake",
        "A stream of nothing",
        StreamData(examples=1000),
        TowerConfig(),
        StreamConfig(replicas=3),
        (StreamSpec("baseline", "baseline", ERM()),),
    )
    launch = LaunchRecord("churn-jax stream clicks", hardware="1 x cpu")
    data = DataRecord("synthetic", examples=1000)
    record = to_json(StreamRecord(config, data, launch))
    record["config"]["methods"] = [row["spec"] for row in rows]
    record["methods"] = [row for row in rows if row["name"] in entries]
    (folder / "study.json").write_text(json.dumps(merged(record, facts)))


def method(penalty, strength, s=1.0):
    return {
        "method": {
            "class": "AntiDistillation",
            "members": 3,
            "penalty": penalty,
            "strength": strength,
            "input_scale": s,
        }
    }


def write_demo(folder, rng, replicas=10):
    """A whole study of Table 3 with plausible numbers, to look at its report."""
    entries = {"baseline": {"label": "No AD", "method": {"class": "ERM"}}}
    common = 0.45 + 0.002 * rng.normal(size=replicas)
    for s in (1, 5, 10):
        for strength in (0.5, 1, 5):
            name = f"correlation_{strength:g}_s{s}".replace(".", "_")
            entries[name] = method("correlation", strength, float(s))
    entries["covariance_1_s1"] = method("covariance", 1.0)
    entries["difference_1_s1"] = method("difference", 1.0)
    for i, (name, entry) in enumerate(entries.items()):
        strength = entry["method"].get("strength", 0.0)
        s = entry["method"].get("input_scale", 1.0)
        level = 0.065 / (1 + 0.4 * strength) / s**0.05

        def scores(shift=0.0, strength=strength, level=level):
            loss = common * (1 + 0.008 * strength + shift)
            loss = loss + 1e-4 * rng.normal(size=replicas)
            loo = level * (1 + 0.01 * rng.normal(size=replicas))
            return totals(loss, level, loo)

        curve = [
            scores(0.5 / (k + 1)) | {"examples": 8192 * (k + 1)} for k in range(24)
        ]
        write_row(folder, name, scores(), curve, scores(0.01), 196608)
        entry.setdefault("label", name.replace("_", " "))
        entry["parameters"], entry["seconds"] = 98321, 61.5 + i
    write_record(
        folder,
        entries,
        planned=("unfinished",),
        config={
            "published": "experiments/anti_distillation/published.csv:table3/clicks",
            "train": {"replicas": replicas},
        },
    )

"""Run folders with synthetic predictions, as a study would leave them."""

import json

import numpy as np

from churn_jax.predictions import Predictions, save_predictions
from churn_jax.reports.published import published_keys, table


def logits_of(classes, num_classes, margin=2.0):
    """`[R, N, C]` logits whose arg max is `classes [R, N]`."""
    return (margin * np.eye(num_classes)[classes]).astype(np.float32)


def noisy_logits(rng, labels, R, C, shared=1.0, own=1.0, margin=3.0, runs=None):
    """`[R, N, C]`: signal + what all runs share + what each run has of its own."""
    N = len(labels)
    common = margin * np.eye(C)[labels] + shared * rng.normal(size=(N, C))
    runs = rng.normal(size=(R, N, C)) if runs is None else runs
    return (common + own * runs).astype(np.float32)


def write_study(folder, methods, labels, ids=None, stopped=None, entries=None, **facts):
    """Write a run folder; `methods` maps names to logits, or to None for planned rows.

    `entries` maps names to what their entry in `study.json` has besides. A study with
    published numbers is on their data set.
    """
    stopped, extra = stopped or {}, entries or {}
    labels = np.asarray(labels)
    ids = np.arange(len(labels)) if ids is None else ids
    entries = []
    for i, (name, logits) in enumerate(methods.items()):
        entries.append(
            {
                "name": name,
                "label": name.replace("_", " ").capitalize(),
                "equation": f"[reproducibility] Eq. {6 + i}",
                "members": 1 + i % 2,
                "training_cost": 1.0 + i % 2,
                "inference_cost": 1.0,
                "coefficients": {"beta": 0.1 * i},
                "seconds": 12.3 + i,
                "compile_seconds": 2.1,
                "parameters": 12345,
                "stopped": stopped.get(name, []),
            }
            | extra.get(name, {})
        )
        if logits is None:
            entries.pop()
        else:
            predictions = Predictions(
                ids, labels, logits, {"method": name, "stopped": stopped.get(name, [])}
            )
            save_predictions(folder / "methods" / name / "predictions.npz", predictions)
            write_history(folder / "methods" / name / "metrics.jsonl", len(logits), i)
    study = {
        "name": "fake",
        "title": "A study of nothing",
        "config": {"optimizer": {"learning_rate": 0.1, "momentum": 0.9}, "epochs": 20},
        "versions": {"churn-jax": "0.1.0", "jax": "0.10.2"},
        "devices": ["CPU 0"],
        "hardware": "2 cores",
        "data": {
            "name": "digits",
            "fingerprint": "sha256:0123456789abcdef",
            "num_classes": 10,
            "train": 697,
            "validation": 100,
            "test": len(labels),
        },
        "date": "2026-11-20T12:00:00",
        "command": "churn-jax study fake",
        "baseline": "baseline",
        "replicas": 3,
        "methods": entries,
    } | facts
    if facts.get("published") in published_keys() and "data" not in facts:
        study["data"]["name"] = table(facts["published"]).data
    planned = [{"name": name, "label": name.capitalize()} for name in methods]
    study["config"] = {"methods": planned} | study["config"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps(study))
    return folder


def write_history(path, R, i=0, epochs=8):
    lines = []
    for epoch in range(1, epochs + 1):
        fall = float(np.exp(-epoch / (3 + i)))
        lines.append(
            {
                "epoch": epoch,
                "step": 40 * epoch,
                "seconds": 0.5 * epoch,
                "train": {"loss": [2 * fall + 0.01 * r for r in range(R)]},
                "validation": {
                    "accuracy": [0.95 - 0.6 * fall for _ in range(R)],
                    "nll": [fall + 0.1] * R,
                    "churn": 0.05 + 0.3 * fall,
                },
            }
        )
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")

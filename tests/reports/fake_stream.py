"""Folders of stream studies with made-up numbers, as `churn-jax stream` leaves them."""

import json

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


def write_record(folder, entries, planned=(), **facts):
    """`study.json`; `entries` maps finished rows to what their entry has besides."""
    methods = [
        {"name": name, "label": name.replace("_", " "), "seconds": 2.0, "stopped": []}
        | extra
        for name, extra in entries.items()
    ]
    plan = [{"name": n, "label": n} for n in (*entries, *planned)]
    record = {
        "kind": "stream",
        "name": "fake",
        "title": "A stream of nothing",
        "config": {"methods": plan},
        "replicas": 3,
        "baseline": "baseline",
        "published": "",
        "data": {"name": "synthetic", "examples": 1000},
        "methods": methods,
    }
    (folder / "study.json").write_text(json.dumps(record | facts))


def method(penalty, strength, s=1.0):
    return {
        "method": {
            "class": "AntiDistillation",
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
        entry["parameters"], entry["members"], entry["seconds"] = 98321, 3, 61.5 + i
    write_record(
        folder,
        entries,
        planned=("unfinished",),
        replicas=replicas,
        published="anti-distillation/table3/clicks",
        differs="the order of examples inside a window",
        hardware="1 x cpu",
        command="churn-jax stream clicks",
    )

"""Seeded predictions of made-up classifiers, in every form that `compare` reads."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np

from churn_jax.prediction_shards import ShardWriter, write_index, write_order
from churn_jax.predictions import Predictions, save_predictions

N, C, R = 600, 6, 4
NAMES = ("ant", "bee", "cat", "dog", "emu", "fox")


def write_inputs(folder: Path) -> None:
    """Writes all files into a folder that is there."""
    rng = np.random.default_rng(18)
    labels = rng.choice(C, N, p=[0.3, 0.25, 0.2, 0.15, 0.07, 0.03])
    ids = np.array([f"x{i:04d}" for i in range(N)])
    signal = 2.0 * np.eye(C)[labels] + rng.normal(size=(N, C))
    old = (signal + 0.8 * rng.normal(size=(R, N, C))).astype(np.float32)
    new = (1.2 * signal + 0.7 * rng.normal(size=(R, N, C))).astype(np.float32)
    order = rng.permutation(N)
    sides = {
        "old": (ids, labels, old),
        "new": (ids[order], labels[order], new[:, order]),
    }
    for name, (of, truth, logits) in sides.items():
        save_predictions(folder / f"{name}.npz", Predictions(of, truth, logits[:1]))
        save_predictions(folder / f"{name}-runs.npz", Predictions(of, truth, logits))
        np.savez(
            folder / f"{name}-half.npz",
            ids=of,
            labels=truth,
            logits=logits[:1].astype(np.float16),
        )
        _write_classes(folder / f"{name}-classes.csv", of, truth, logits[0])
        _write_names(folder / f"{name}-names.csv", of, truth, logits[0])
        _write_probabilities(folder / f"{name}-probabilities", of, truth, logits[0])
        _write_runs(folder / f"{name}-runs.csv", of, truth, logits)
        _write_shards(folder / f"{name}-shards", of, truth, logits[:2])
    np.save(folder / "old.npy", old[0].argmax(-1))
    np.save(folder / "new.npy", new[0].argmax(-1))
    np.save(folder / "old-logits.npy", old[0])
    np.save(folder / "new-logits.npy", new[:2])
    np.save(folder / "labels.npy", labels)
    some = np.sort(rng.permutation(N)[:550])
    save_predictions(
        folder / "some.npz", Predictions(ids[some], labels[some], new[:1, some])
    )
    other = labels.copy()
    other[7] = (other[7] + 1) % C
    save_predictions(folder / "other-labels.npz", Predictions(ids, other, new[:1]))
    bad = new[:1].copy()
    bad[0, 3, 2] = np.nan
    np.savez(folder / "nan.npz", ids=ids, labels=labels, logits=bad)
    save_predictions(
        folder / "wide.npz",
        Predictions(
            ids, labels, np.pad(new[:1], ((0, 0), (0, 0), (0, 1)), constant_values=-3)
        ),
    )
    _write_rows(
        folder / "slices.csv",
        ["id", "region", "size"],
        zip(ids, np.where(labels < 2, "north", "south"), np.arange(N) // 250),
    )
    _write_rows(
        folder / "classes-map.csv", ["old", "new"], ((n, n.title()) for n in NAMES)
    )
    (folder / "classes-map.json").write_text(json.dumps({str(i): i for i in range(C)}))
    (folder / "gates.toml").write_text(GATES)
    (folder / "bad-gates.toml").write_text('max-nfrr = "1%"\n')
    _write_versions(folder / "versions", rng, ids, labels, signal)


GATES = """
on = "bound"
min-examples = 30
max-nfr = "12%"
min-accuracy-gain = -0.02
max-churn = {limit = "40%", on = "estimate"}
max-brier-new = 0.9
min-kappa = 0.2
[slices]
max-churn = 0.5
[slices.region]
max-nfr = {limit = "15%", on = "estimate"}
[slices.region."north"]
max-nfr = "25%"
[classes]
min-accuracy-gain = {limit = "-30%", on = "estimate", min-examples = 50}
[classes."2"]
max-churn = 0.9
"""


def _write_rows(path: Path, header, rows) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _write_classes(path, ids, labels, logits) -> None:
    rows = zip(ids, labels, logits.argmax(-1))
    _write_rows(path, ["id", "label", "prediction"], rows)


def _write_names(path, ids, labels, logits) -> None:
    names = np.array(NAMES if "old" in path.name else [n.title() for n in NAMES])
    rows = zip(ids, names[labels], names[logits.argmax(-1)])
    _write_rows(path, ["key", "truth", "answer"], rows)


def _probabilities(logits):
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _write_probabilities(path, ids, labels, logits) -> None:
    """The old side as Parquet, the new one as compressed text."""
    import pyarrow as pa
    import pyarrow.parquet

    probs = _probabilities(logits)
    columns = {f"prob_{c}": probs[:, c] for c in range(C)}
    if "old" in path.name:
        table = pa.table({"id": ids, "label": labels} | columns)
        pa.parquet.write_table(table, path.with_suffix(".parquet"))
        return
    lines = [",".join(["id", "label", *columns])]
    lines += [
        ",".join([i, str(y), *(f"{p:.9f}" for p in row)])
        for i, y, row in zip(ids, labels, probs, strict=True)
    ]
    with gzip.GzipFile(path.with_suffix(".csv.gz"), "wb", mtime=0) as file:
        file.write("\n".join(lines).encode() + b"\n")


def _write_runs(path, ids, labels, logits) -> None:
    header = ["run", "id", "y_true", *(f"logit_{c}" for c in range(C))]
    rows = (
        [run, ids[i], labels[i], *(f"{v:.6f}" for v in logits[run, i])]
        for run in range(2)
        for i in range(N)
    )
    _write_rows(path, header, rows)


def _write_shards(folder, ids, labels, logits) -> None:
    for shard in range(3):
        rows = slice(shard, None, 3)
        of = ids[rows], labels[rows], len(logits), C
        with ShardWriter(folder, shard, 3, *of) as writer:
            writer.write(logits[:, rows])
    write_order(folder, 3, ids)
    write_index(folder, 3, {})


def _write_versions(folder, rng, ids, labels, signal) -> None:
    folder.mkdir()
    for number, strength in (("v1", 0.8), ("v2", 1.0), ("v10", 1.4), ("v3", 1.1)):
        logits = strength * signal + 0.8 * rng.normal(size=(1, N, C))
        found = Predictions(ids, labels, logits.astype(np.float32))
        save_predictions(folder / f"{number}.npz", found)

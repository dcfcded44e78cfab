"""Folders of versions by the command."""

import json

import numpy as np

from tests.freeze.inputs import (
    GROUPS,
    IDS,
    LABELS,
    NAMES,
    OLD,
    ORDER,
    USER,
    C,
    logits_of,
    named,
    side,
)
from tests.freeze.registry import cli, refused
from tests.freeze.session import write

RUNS = [logits_of(r, 1.2 + 0.2 * r) for r in range(5)]


def classes(count, ending="csv", **more):
    """A file for each version, with names in natural order."""
    return {
        f"v/v{n}.{ending}": side(
            classes=RUNS[i].argmax(1), order=ORDER if i % 2 else None, **more
        )
        for i, n in enumerate((1, 2, 10, 11, 12)[:count])
    }


def scores(count, ending="npz"):
    """The same with logits."""
    return {
        f"v/v{n}.{ending}": {"ids": IDS, "labels": LABELS, "logits": RUNS[i]}
        for i, n in enumerate((1, 2, 10, 11, 12)[:count])
    }


cli("versions.two", "v", classes(2), pages=True)
cli("versions.three", "v", classes(3), pages=True)
cli("versions.four", "v --max-churn 40%", classes(4), pages=True)
cli("versions.three_names", "v", classes(3, names=NAMES))
cli("versions.three_no_labels", "v", classes(3, labels=None), pages=True)
cli("versions.four_scores", "v", scores(4), pages=True)
cli("versions.three_parquet", "v --kind classes", classes(3, "parquet"))
cli(
    "versions.slices",
    "v --slices g.csv --max-slice-nfr 10%",
    classes(3) | {"g.csv": GROUPS},
    pages=True,
)
cli("versions.slices_inside", "v", classes(3) | {"v/slices.csv": GROUPS})
cli(
    "versions.labels_inside",
    "v",
    classes(3, labels=None) | {"v/labels.csv": {"id": IDS, "label": LABELS}},
)
cli(
    "versions.labels_outside",
    "v --labels v/y.csv",
    classes(3, labels=None) | {"v/y.csv": {"id": IDS, "label": LABELS}},
)
cli(
    "versions.labels_of_one",
    "v",
    {
        n: of if "v1." in n else {k: x for k, x in of.items() if k != "label"}
        for n, of in classes(3).items()
    },
)
cli(
    "versions.labels_of_one_names",
    "v",
    {
        n: of if "v1." in n else {k: x for k, x in of.items() if k != "label"}
        for n, of in classes(3, names=NAMES).items()
    },
)
cli(
    "versions.ids_inside",
    "v",
    {f"v/v{i}.npy": RUNS[i] for i in range(3)}
    | {"v/ids.npy": IDS, "v/labels.csv": {"id": IDS, "label": LABELS}},
)
cli(
    "versions.no_ids",
    "v --labels y.npy",
    {f"v/v{i}.npy": RUNS[i] for i in range(3)} | {"y.npy": LABELS},
)
cli("versions.order", "v --order v10 v1", classes(4))
cli("versions.cluster", "v --cluster user", classes(3, user=USER), pages=True)
cli(
    "versions.cluster_slices",
    "v --cluster user --slices g.csv --pool region --equivalent 10%",
    classes(3) | {"g.csv": GROUPS | {"user": USER}},
)
cli(
    "versions.intersect",
    "v --on-missing intersect",
    {
        n: {k: x[i * 5 :] for k, x in of.items()}
        for i, (n, of) in enumerate(classes(3).items())
    },
)
cli(
    "versions.gates",
    "v --gates g.toml --slices g.csv",
    classes(3)
    | {
        "g.csv": GROUPS,
        "g.toml": 'on = "interval"\nmax-churn = 0.3\n[slices]\nmax-nfr = 0.2\n[classes]\nmax-nfr = 0.9',
    },
    pages=True,
)
cli(
    "versions.waivers",
    "v --gates g.toml",
    classes(3)
    | {
        "g.toml": "max-nfr = 0.1\n"
        + "".join(
            f'[[waive]]\nid = "{i}"\nreason = "x"\nuntil = 2999-01-01\n'
            for i in IDS[:60]
        )
    },
    pages=True,
)
cli(
    "versions.folders",
    "v",
    {
        f"v/m{i}/predictions.npz": {"ids": IDS, "labels": LABELS, "logits": RUNS[i]}
        for i in range(3)
    },
)
cli(
    "versions.runs",
    "v",
    {
        f"v/m{i}.npz": {
            "ids": IDS,
            "labels": LABELS,
            "logits": np.stack([RUNS[i], RUNS[i + 1], RUNS[i + 2]]),
        }
        for i in range(3)
    },
    pages=True,
)
cli(
    "versions.runs_of_some",
    "v",
    {
        f"v/m{i}.npz": {
            "ids": IDS,
            "labels": LABELS,
            "logits": np.stack([RUNS[i], RUNS[i + 1]]) if i else RUNS[0],
        }
        for i in range(3)
    },
)
STUDY = {
    f"v/methods/{n}/predictions.npz": {"ids": IDS, "labels": LABELS, "logits": RUNS[i]}
    for i, n in enumerate("zab")
}
cli(
    "versions.study",
    "v",
    STUDY | {"v/study.json": json.dumps({"methods": [{"name": n} for n in "zab"]})},
)
cli("versions.study_damaged", "v", STUDY | {"v/study.json": "{"})
cli(
    "versions.strip",
    "v --strip",
    {
        f"v/v{i}.csv": side(
            classes=named(RUNS[i].argmax(1)),
            labels=named(LABELS),
            ids=np.array([f"e{k}{' ' * i}" for k in IDS]),
        )
        for i in range(3)
    },
)
cli(
    "versions.identity",
    "v --class-map identity",
    {
        f"v/v{i}.npz": {"ids": IDS, "logits": RUNS[i][:, : 3 + (i > 0)]}
        for i in range(3)
    },
)
cli(
    "versions.mixed",
    "v",
    {
        "v/v1.csv": side(classes=named(RUNS[0].argmax(1)), labels=named(LABELS)),
        "v/v2.parquet": side(RUNS[1], names=NAMES),
        "v/v3.jsonl": side(classes=named(RUNS[2].argmax(1)), labels=named(LABELS)),
    },
)
cli("versions.parts", "v", {f"v/v{i}": lambda p, i=i: _parts(p, i) for i in range(3)})
cli(
    "versions.unchanged",
    "v",
    {f"v/v{i}.csv": side(classes=RUNS[0].argmax(1)) for i in range(3)},
    pages=True,
)
cli(
    "versions.many",
    "v",
    {f"v/v{i}.npy": RUNS[i % 5].argmax(1) for i in range(9)},
    pages=True,
)


def _parts(path, number):
    path.mkdir()
    (path / "_SUCCESS").touch()
    write(path / "part-00000.csv", side(classes=RUNS[number].argmax(1)))


for name, words, files in (
    ("none", "v", {"v/notes.txt": "x"}),
    ("one", "v", classes(1)),
    ("order_twice", "v --order v1 v1", classes(3)),
    ("order_gone", "v --order v1 v7", classes(3)),
    ("order_one", "v --order v1", classes(3)),
    ("both_called", "v", classes(2) | {"v/v1.parquet": side(OLD)}),
    (
        "two_in_a_folder",
        "v",
        classes(2) | {"v/m/predictions.npz": {}, "v/m/predictions.csv": "x"},
    ),
    ("by", "v --by region", classes(2)),
    ("score_column", "v --score-column x", classes(2)),
    ("tolerance", "v --tolerance 1", classes(2)),
    ("map", "v --class-map m.csv", classes(2) | {"m.csv": "old,new\n1,2\n"}),
    (
        "disjoint",
        "v",
        {
            "v/v1.csv": side(classes=RUNS[0].argmax(1)),
            "v/v2.csv": side(classes=RUNS[1].argmax(1), ids=IDS + 10_000),
        },
    ),
    (
        "in_none",
        "v --on-missing intersect",
        {
            "v/v1.csv": {"id": [1, 2, 3], "prediction": [0, 1, 0]},
            "v/v2.csv": {"id": [3, 4, 5], "prediction": [0, 1, 0]},
            "v/v3.csv": {"id": [5, 6], "prediction": [0, 1]},
        },
    ),
    ("gate", "v --max-excess-churn 1%", classes(2)),
    ("slice_gate", "v --max-slice-nfr 1%", classes(2)),
    ("shards", "v", {"v/index.json": "{}"}),
    ("bad_file", "v", classes(2) | {"v/v3.csv": "x\n1\n"}),
    ("cluster", "v --cluster z", classes(2)),
    ("pool", "v --pool z", classes(2)),
    ("new_missing", "v/v1.csv", classes(2)),
    ("gone", "w", classes(2)),
    (
        "labels_differ",
        "v",
        classes(2) | {"v/v3.csv": side(classes=OLD.argmax(1), labels=(LABELS + 1) % C)},
    ),
):
    refused(f"versions_{name}", words, files)

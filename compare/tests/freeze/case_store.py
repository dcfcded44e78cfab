"""Predictions on disk: files, shards and what is damaged."""

import json
from pathlib import Path

import numpy as np

from tests.freeze.inputs import (
    IDS,
    LABELS,
    NEW,
    NEW_RUNS,
    OLD,
    OLD_RUNS,
    OTHER,
    OWN,
    C,
    N,
)
from tests.freeze.registry import act, cli, py, refused
from tests.freeze.session import calling, keep

R = 3


def shards(of, count=2, dtype="float32", order=True, meta=None, rows=None):
    """A folder of shards."""

    def make(path):
        from churn_compare import store

        parts = np.array_split(np.arange(N), count) if rows is None else rows
        logits = of if of.ndim == 3 else of[None]
        for shard, at in enumerate(parts):
            with store.ShardWriter(
                path, shard, count, IDS[at], LABELS[at], len(logits), C, dtype
            ) as writer:
                for start in range(0, len(at), 25):
                    writer.write(logits[:, at[start : start + 25]])
        store.write_index(path, count, meta)

    return make


for dtype in ("float32", "float16", "bfloat16"):
    cli(
        f"store.shards_{dtype}",
        "old new",
        {"old": shards(OLD, 3, dtype), "new": shards(NEW, 2, dtype)},
    )
cli(
    "store.shards_runs",
    "old new",
    {"old": shards(OLD_RUNS), "new": shards(NEW_RUNS, 4)},
    pages=True,
)
cli("store.shards_and_file", "old new.npz", {"old": shards(OLD, 1), "new.npz": OTHER})
cli(
    "store.shards_of_study",
    "o n",
    {"o/predictions": shards(OLD), "n/predictions": shards(NEW)},
)
cli(
    "store.shards_stopped",
    "old new",
    {
        "old": shards(OLD_RUNS, meta={"stopped": [{"replica": 1}]}),
        "new": shards(NEW_RUNS),
    },
)
cli(
    "store.folder_of_file",
    "o n",
    {"o/predictions.npz": OWN, "n/predictions.npz": OTHER},
)
cli(
    "store.versions",
    "v",
    {
        "v/v1": shards(OLD),
        "v/v2": shards(NEW),
        "v/v3/predictions": shards(OLD + NEW),
        "v/v4/predictions.npz": OWN,
    },
)
cli("store.noise", "--noise old new", {"old": shards(OLD), "new": shards(NEW)})
refused("store_shards_as_versions", "old", {"old": shards(OLD)})


def damaged(name, change, count=2):
    """A folder of shards of which something was changed."""

    def make(path):
        shards(OLD_RUNS, count)(path)
        change(path)

    refused(f"store_{name}", "old new.npz", {"old": make, "new.npz": OTHER})

    def read(kept):
        from churn_compare.store import load_predictions, read_shards

        calling(lambda: read_shards("old").shape, kept, "read_shards")
        calling(lambda: load_predictions("old").shape, kept, "load_predictions")

    act(f"store.damaged_{name}", read, {"old": make})


def _file(part, shard=1):
    return f"{part}-{shard:05d}-of-00002.npy"


def _bytes(name, change):
    return lambda folder: (folder / name).write_bytes(
        change((folder / name).read_bytes())
    )


def _index(**fields):
    def change(folder):
        index = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps({**index, **fields}))

    return change


def _save(part, array):
    return lambda folder: np.save(folder / _file(part), array)


H = N // 2
for name, change in {
    "no_index": lambda d: (d / "index.json").unlink(),
    "no_logits": lambda d: (d / _file("logits")).unlink(),
    "cut": _bytes(_file("logits"), lambda c: c[:-5]),
    "cut_header": _bytes(_file("logits"), lambda c: c[:8]),
    "classes": _save("logits", np.zeros((R, H, C + 1), np.float32)),
    "runs": _save("logits", np.zeros((1, H, C), np.float32)),
    "kind": _save("logits", np.zeros((R, H, C), np.float16)),
    "float64": _save("logits", np.zeros((R, H, C))),
    "ids": _save("ids", np.arange(3)),
    "id_texts": _save("ids", np.arange(H).astype("U3")),
    "ids_twice": lambda d: np.save(d / _file("ids"), np.load(d / _file("ids", 0))),
    "labels": _save("labels", np.full(H, -1)),
    "label_floats": _save("labels", np.zeros(H)),
    "ids_shape": _save("ids", np.zeros((H, 1), int)),
    "index": _bytes("index.json", lambda c: b"{"),
    "index_list": _bytes("index.json", lambda c: b"[1]"),
    "format": _index(format="x"),
    "version": _index(version=2),
    "flipped": _bytes(_file("logits"), lambda c: c[:-1] + bytes([c[-1] ^ 0x80])),
    "flipped_ids": _bytes(_file("ids"), lambda c: c[:-1] + bytes([c[-1] ^ 0x80])),
    "no_checksums": _index(checksums={}),
    "checksums": _index(checksums=0),
    "shards_3": _index(shards=3),
    "shards_0": _index(shards=0),
    "shards_text": _index(shards="2"),
    "meta": _index(meta=[]),
    "examples": _index(examples=22),
    "stopped": _index(meta={"stopped": [9]}),
    "order": lambda d: np.save(d / "order.npy", np.zeros(N, int)),
}.items():
    damaged(name, change)


def saved(kept):
    from churn_compare import store

    of = store.Predictions(IDS, LABELS, OLD_RUNS, {"method": "erm", "stopped": [1]})
    keep(
        kept,
        "facts",
        [of.shape, of.stopped, of.in_memory, of.logits.dtype.name, of.meta],
    )
    keep(kept, "path", store.save_predictions("a/p.npz", of))
    for path in (
        "a/p.npz",
        "a",
        "gone.npz",
        "text.npz",
        "lacking.npz",
        "empty.npz",
        "pickle.npz",
        "short.npz",
        "two.npz",
        "meta.npz",
    ):
        calling(lambda: _facts(store.load_predictions(path)), kept, path)
    calling(
        lambda: store.save_predictions(
            "b.npz", store.Predictions(IDS, LABELS, OLD_RUNS, {"a": object()})
        ),
        kept,
        "not JSON",
    )
    keep(kept, "files", sorted(str(p) for p in Path("a").iterdir()))
    for start, block in of.blocks([0, 2], 4 * 2 * 50):
        keep(kept, f"block {start}", [block.shape, float(block.sum())])


def _facts(found):
    logits = np.asarray(found.logits)
    return [
        found.ids,
        found.labels,
        found.shape,
        logits[:, :2],
        found.meta,
        found.stopped,
        found.in_memory,
    ]


act(
    "store.files",
    saved,
    {
        "text.npz": "hello",
        "lacking.npz": {"ids": [1], "weights": [2]},
        "empty.npz": lambda p: np.savez(p),
        "pickle.npz": lambda p: np.savez(
            p, ids=np.array([{}], object), labels=[0], logits=np.eye(2)
        ),
        "two.npz": {"ids": np.arange(3), "labels": np.arange(3), "logits": np.eye(3)},
        "short.npz": {
            "ids": np.arange(3),
            "labels": np.zeros(2, int),
            "logits": np.eye(3),
        },
        "meta.npz": {
            "ids": np.arange(3),
            "labels": np.arange(3),
            "logits": np.eye(3),
            "meta": "{",
        },
    },
)
GOOD = {
    "ids": np.arange(7),
    "labels": np.zeros(7, int),
    "logits": np.arange(84.0).reshape(3, 7, 4),
    "meta": {},
}
HOLED = GOOD["logits"].copy()
HOLED[1, [2, 4], 0] = np.nan
for number, change in enumerate(
    (
        {},
        {"logits": np.zeros((7, 4))},
        {"logits": np.zeros((2, 7, 1))},
        {"logits": np.zeros((2, 6, 4))},
        {"logits": np.full((1, 7, 4), "x")},
        {"labels": np.zeros(7)},
        {"labels": np.zeros((7, 1), int)},
        {"labels": np.array([0, -1, 0, -1, 0, 0, 0])},
        {"ids": np.array([0, 1, 1, 2, 2, 3, 4])},
        {"ids": np.zeros((7, 1), int)},
        {"ids": np.linspace(0, 1, 7)},
        {"ids": np.array([b"a", b"b", b"c", b"d", b"e", b"f", b"g"], object)},
        {"ids": [f"é{i}" for i in range(7)]},
        {"meta": 3},
        {"meta": {"stopped": [5]}},
        {"meta": {"stopped": [{"step": 1}]}},
        {"meta": {"stopped": 3}},
        {"logits": HOLED},
        {"logits": HOLED, "meta": {"stopped": [1]}},
        {"logits": np.where(HOLED > 3, np.inf, 0)},
        {"logits": np.full((1, 7, 4), -np.inf)},
        {"logits": np.full((1, 7, 4), -1e300)},
    )
):
    py(
        f"predictions_{number:02d}",
        lambda c=change: _facts(
            __import__("churn_compare.store", fromlist=["x"]).Predictions(**GOOD | c)
        ),
    )


def comparable(kept):
    from churn_compare import store

    a = store.Predictions(**GOOD)
    for name, change in {
        "same": {},
        "other_ids": {"ids": np.arange(2, 9)},
        "order": {"ids": np.array([1, 0, 2, 3, 4, 5, 6])},
        "texts": {"ids": np.arange(7).astype(str)},
        "labels": {"labels": np.array([0, 0, 0, 1, 0, 1, 0])},
    }.items():
        calling(
            lambda: store.check_comparable(a, store.Predictions(**GOOD | change)),
            kept,
            name,
        )


act("store.comparable", comparable)


def writer(kept):
    from churn_compare import store

    given = {
        "shard": 0,
        "shards": 2,
        "ids": [3, 1, 2],
        "labels": [0, 1, 0],
        "runs": 2,
        "classes": 4,
    }
    for name, change in {
        "shard": {"shard": 2},
        "labels": {"labels": [0]},
        "floats": {"labels": [0.0, 1.0, 2.0]},
        "ids": {"ids": [[1, 2, 3]]},
        "runs": {"runs": 0},
        "classes": {"classes": 1},
        "dtype": {"dtype": "float64"},
    }.items():
        calling(lambda: store.ShardWriter("p", **given | change), kept, name)
    for name, shape, value in (
        ("rows", (2, 4, 4), 0),
        ("axes", (2, 3), 0),
        ("runs", (1, 3, 4), 0),
        ("few", (2, 2, 4), 0),
        ("large", (2, 3, 4), 7e4),
        ("text", (2, 3, 4), "a"),
        ("complex", (2, 3, 4), 1j),
    ):

        def write():
            with store.ShardWriter(
                "q", 0, 1, [3, 1, 2], [0, 1, 0], 2, 4, "float16"
            ) as to:
                logits = np.full(shape, value)
                to.write(
                    logits.astype(np.float32) if logits.dtype.kind in "if" else logits
                )

        calling(write, kept, f"write {name}")
    keep(kept, "left", sorted(p.name for p in Path("q").iterdir()))
    calling(lambda: store.write_index("q", 1), kept, "index of nothing")
    calling(lambda: store.write_index("r", 2, {"a": object()}), kept, "meta")
    calling(lambda: store.write_index("r", 2, {"a": 1}), kept, "index")
    keep(kept, "index.json", json.loads(Path("r/index.json").read_text()))
    found = store.read_shards("r")
    keep(
        kept,
        "read",
        [found.ids, found.labels, found.shape, found.in_memory, found.meta],
    )
    logits = found.logits
    keep(
        kept,
        "logits",
        [
            logits.shape,
            logits.ndim,
            logits.size,
            logits.nbytes,
            len(logits),
            str(logits.dtype),
        ],
    )
    for what in ((0, slice(3, 9)), (1, [100, 0, 5]), (2, 7), (0, slice(1, 90, 20)), 1):
        calling(lambda: logits[what], kept, f"picked {what}")
    keep(kept, "chosen", logits[[2, 0]][0, 4:8])
    for wrong in ((3, 0), (0, N), (0, [-N - 1]), (0, 1.5), ([0, 1], 2)):
        calling(lambda: logits[wrong], kept, f"wrong {wrong}")
    order = type(logits).of(logits, np.array([20, 3, 4, 119, 0]))
    keep(kept, "order", order[1])
    keep(kept, "array", np.asarray(order))
    for start, block in found.blocks([1, 0], 400):
        keep(kept, f"block {start}", [block.shape, float(block.sum())])
    calling(lambda: _facts(store.load_predictions("r", whole=True)), kept, "load")
    calling(
        lambda: _facts(store.load_predictions("r.npz")), kept, "load in place of a file"
    )
    keep(kept, "names", sorted(store.__all__))


act("store.writer", writer, {"r": shards(OLD_RUNS)})

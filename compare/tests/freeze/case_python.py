"""Calls in Python: public functions, assertions, the pytest plugin, documents."""

import json
from inspect import signature
from pathlib import Path

import numpy as np

from tests.freeze.inputs import (
    DEVICE,
    GROUPS,
    IDS,
    ITEMS,
    LABELS,
    NAMES,
    NEW,
    NEW_CLASS,
    NEW_PROBS,
    NEW_RUNS,
    OLD,
    OLD_CLASS,
    OLD_PROBS,
    OLD_RUNS,
    ORDER,
    OTHER,
    OWN,
    REGION,
    RIGHT_NEW,
    RIGHT_OLD,
    SAID_NEW,
    SAID_OLD,
    SCORE_NEW,
    SCORE_OLD,
    TARGET,
    TASK,
    USER,
    N,
    items,
    named,
    pair,
    rankings,
    sets,
    side,
)
from tests.freeze.registry import act, py
from tests.freeze.session import calling, keep, records_of


def compare(*sides, **options):
    from churn_compare import compare

    return compare(*sides, **{"resamples": 200} | options)


def outcomes(*sides, **options):
    from churn_compare import compare_outcomes

    return compare_outcomes(*sides, **options)


class Frame:
    """What is used of a pandas data frame."""

    def __init__(self, columns, index=None, name=None):
        self.columns, self._columns = list(columns), columns
        self.index = None if index is None else Index(index, name)

    def __getitem__(self, name):
        return self._columns[name]


class Index:
    """What is used of an index."""

    def __init__(self, values, name=None):
        self._values, self.name = np.asarray(values), name

    def __array__(self, dtype=None, copy=None):
        return self._values if dtype is None else self._values.astype(dtype)


class Series:
    """What is used of a series."""

    def __init__(self, values, index, name=None):
        self._values, self.index, self.name = np.asarray(values), Index(index), name

    def __array__(self, dtype=None, copy=None):
        return self._values if dtype is None else self._values.astype(dtype)

    def to_frame(self):
        return Frame({self.name: self._values}, self.index._values)


class Lazy:
    """What is used of a lazy frame."""

    def __init__(self, columns):
        self._columns = columns

    def lazy(self):
        return self

    def collect(self):
        return self

    def to_arrow(self):
        import pyarrow as pa

        return pa.table(self._columns)


class DataSet:
    """What is used of a data set of Hugging Face."""

    features = ()

    def __init__(self, columns, size=True):
        self._columns = columns
        if size:
            self.__class__ = type("Sized", (DataSet,), {"__len__": lambda self: N})

    def with_format(self, name):
        return self

    def __getitem__(self, rows):
        import pyarrow as pa

        return pa.table(self._columns)


class Tensor:
    """What is used of a tensor of PyTorch."""

    def __init__(self, values, dtype="torch.float32"):
        self._values, self.dtype = values, dtype

    def detach(self):
        return self

    def cpu(self):
        return self

    def float(self):
        return Tensor(self._values.astype(np.float32))

    def __array__(self, dtype=None, copy=None):
        return self._values


LABELLED = {"labels": LABELS, "ids": IDS}
COLUMNS = [side(classes=OLD_CLASS), side(classes=NEW_CLASS, order=ORDER)]
SCORES = [side(OLD), side(NEW, order=ORDER)]


def table(columns):
    import pyarrow as pa

    return pa.table(columns)


def predictions(logits):
    from churn_compare.store import Predictions

    return Predictions(
        IDS,
        LABELS,
        np.atleast_3d(logits) if logits.ndim == 3 else logits[None],
        {"method": "erm"},
    )


FORMS = {
    "arrays": lambda: compare(OLD, NEW, **LABELLED),
    "arrays_no_ids": lambda: compare(OLD, NEW, labels=LABELS),
    "probabilities": lambda: compare(OLD_PROBS, NEW_PROBS, labels=LABELS),
    "runs": lambda: compare(OLD_RUNS, NEW_RUNS, labels=LABELS),
    "lists": lambda: compare(
        OLD_CLASS.tolist(), NEW_CLASS.tolist(), labels=LABELS.tolist()
    ),
    "names": lambda: compare(named(OLD_CLASS), named(NEW_CLASS), labels=named(LABELS)),
    "booleans": lambda: compare(OLD_CLASS > 1, NEW_CLASS > 1, labels=LABELS > 1),
    "mapping": lambda: compare(OWN, OTHER),
    "columns": lambda: compare(*COLUMNS),
    "records": lambda: compare(*map(records_of, COLUMNS)),
    "frames": lambda: compare(*map(Frame, COLUMNS)),
    "frames_of_scores": lambda: compare(*map(Frame, SCORES)),
    "frames_with_lists": lambda: compare(
        *(Frame({"id": IDS, "label": LABELS, "logits": of}) for of in (OLD, NEW))
    ),
    "frames_with_index": lambda: compare(
        Frame({"prediction": OLD_CLASS}, IDS),
        Frame({"prediction": NEW_CLASS[ORDER]}, IDS[ORDER]),
    ),
    "frames_with_named_index": lambda: compare(
        Frame({"prediction": OLD_CLASS}, IDS, "id"),
        Frame({"prediction": NEW_CLASS[ORDER]}, IDS[ORDER], "id"),
        labels=dict(zip(IDS.tolist(), LABELS.tolist())),
    ),
    "frames_that_count": lambda: compare(
        Frame({"prediction": OLD_CLASS}, range(N)),
        Frame({"prediction": NEW_CLASS}, range(N)),
        labels=LABELS,
    ),
    "frame_and_array": lambda: compare(
        Frame({"prediction": OLD_CLASS}, IDS), NEW_CLASS
    ),
    "series": lambda: compare(
        Series(OLD_CLASS, IDS),
        Series(NEW_CLASS[ORDER], IDS[ORDER]),
        labels=Series(LABELS, IDS),
    ),
    "series_in_mapping": lambda: compare(
        {"prediction": Series(OLD_CLASS, IDS), "label": Series(LABELS, IDS)},
        {"prediction": Series(NEW_CLASS, IDS), "label": Series(LABELS, IDS)},
    ),
    "series_with_other_indexes": lambda: compare(
        {"prediction": Series(OLD_CLASS, IDS), "label": Series(LABELS, IDS[::-1])},
        {"prediction": NEW_CLASS},
    ),
    "arrow": lambda: compare(*map(table, SCORES)),
    "arrow_batches": lambda: compare(*(table(of).combine_chunks() for of in COLUMNS)),
    "lazy": lambda: compare(*map(Lazy, COLUMNS)),
    "data_sets": lambda: compare(*map(DataSet, COLUMNS)),
    "streams": lambda: compare(*(DataSet(of, size=False) for of in COLUMNS)),
    "tensors": lambda: compare(
        Tensor(OLD), Tensor(NEW, "torch.bfloat16"), labels=Tensor(LABELS)
    ),
    "predictions": lambda: compare(predictions(OLD), predictions(NEW)),
    "predictions_and_file": lambda: compare(predictions(OLD), "new.npz"),
    "masked": lambda: compare(np.ma.masked_array(OLD, OLD > 3), NEW),
    "masked_without": lambda: compare(np.ma.masked_array(OLD, OLD > 30), NEW),
    "masked_in_mapping": lambda: compare(
        {"prediction": np.ma.masked_array(OLD_CLASS, OLD_CLASS > 2)}, NEW_CLASS
    ),
    "tables_in_mapping": lambda: compare({"test": table(COLUMNS[0])}, NEW_CLASS),
    "objects": lambda: compare([object(), 1], [1, 2]),
    "nothing": lambda: compare(None, None),
    "text_that_is_no_file": lambda: compare("old.csv", "new.csv"),
    "mixed_lists": lambda: compare([0, "a", 2.5], [1, 2, 3]),
    "nested": lambda: compare([[0, 1], [1]], [0, 1]),
    "structured": lambda: compare(
        np.array([*zip(IDS, OLD_CLASS)], [("id", int), ("pred", int)]),
        np.array([*zip(IDS, NEW_CLASS)], [("id", int), ("pred", int)]),
    ),
    "sides": lambda: _sides(),
    "string_views": lambda: _views(),
    "binary": lambda: compare(
        OLD_PROBS[:, 1], NEW_PROBS[:, 1], labels=LABELS % 2, kind="probabilities"
    ),
    "binary_logits": lambda: compare(
        OLD[:, 1:2], NEW[:, 1:2], labels=LABELS % 2, kind="logits"
    ),
    "one_score": lambda: compare(OLD_PROBS[:, 1], NEW_PROBS[:, 1]),
    "kinds": lambda: compare(
        "two.npz", "two.npz", old_kind="logits", new_kind="classes"
    ),
    "kind_unknown": lambda: compare(OLD, NEW, kind="texts"),
}


def _sides():
    from churn_compare import compare, read_side

    return compare(read_side(OWN, "first"), read_side(OTHER, "second"), resamples=100)


def _views():
    import pyarrow as pa

    views = pa.array([f"e{i}" for i in IDS], pa.string_view())
    return compare(
        *(pa.table({"id": views, "class": of}) for of in (OLD_CLASS, NEW_CLASS))
    )


for name, function in FORMS.items():
    py(
        f"form_{name}",
        function,
        {"new.npz": OTHER, "two.npz": OWN | {"predictions": NEW_CLASS}},
    )

OPTIONS = {
    "slices": {"slices": {"region": REGION, "device": DEVICE}},
    "slices_by_id": {"slices": GROUPS},
    "slices_series": {"slices": Series(REGION, IDS, "region")},
    "slices_frame": {"slices": Frame({"region": REGION}, IDS)},
    "slices_numbers": {
        "slices": {"n": np.arange(N) % 4 / 2, "d": np.arange(N) % 3 + 0.0}
    },
    "slices_missing": {
        "slices": {"n": np.where(np.arange(N) % 5, np.arange(N) % 3, np.nan)}
    },
    "slices_shape": {"slices": {"n": np.zeros((N, 2))}},
    "slices_objects": {"slices": {"n": np.array([object()] * N)}},
    "clusters": {"clusters": USER},
    "clusters_by_id": {"clusters": dict(zip(IDS.tolist(), USER.tolist()))},
    "clusters_frame": {"clusters": Frame({"user": USER}, IDS)},
    "clusters_two_columns": {"clusters": {"a": USER, "b": USER}},
    "clusters_lengths": {"clusters": USER[:50]},
    "clusters_texts": {"clusters": np.array([f"u{u}" if u else "" for u in USER])},
    "labels_by_id": {"labels": dict(zip(IDS.tolist(), LABELS.tolist()))},
    "labels_frame": {"labels": Frame({"label": LABELS}, IDS)},
    "labels_short": {"labels": LABELS[:50]},
    "labels_shape": {"labels": LABELS[:, None]},
    "labels_bytes": {"labels": np.array([b"\xe9"] * N)},
    "labels_nan": {"labels": np.where(LABELS > 2, np.nan, LABELS)},
    "ids_file": {"ids": "ids.csv"},
    "ids_array": {"ids": IDS},
    "ids_twice": {"ids": np.zeros(N, int)},
    "ids_short": {"ids": IDS[:50]},
    "ids_shape": {"ids": IDS[:, None]},
    "ids_frame": {"ids": Frame({"x": LABELS, "z": LABELS}, IDS)},
    "ids_two_columns": {"ids": {"x": LABELS, "z": LABELS}},
    "gates": {
        "gates": {"max_churn": "20%", "max_slice_nfr": None, "min_accuracy_gain": -0.5}
    },
    "gates_hyphens": {"gates": {"max-nfr": 0.5, "min-kappa": 0.5}},
    "gates_classes": {"gates": {"max_class_churn": 0.9, "max_class_nfr": "3%"}},
    "gates_wrong": {"gates": ["max-churn"]},
    "gates_unknown": {"gates": {"churn": 0.1}},
    "gates_value": {"gates": {"max_churn": []}},
    "equivalent": {"equivalent": "30%"},
    "level": {"level": 0.8, "resamples": 150, "seed": 7},
    "level_wrong": {"level": 2},
    "resamples_wrong": {"resamples": 10},
    "seed_wrong": {"seed": -1},
    "regressions": {"regressions": 2},
    "regressions_none": {"regressions": 0},
    "class_map": {"class_map": {0: 1, 1: 0, 2: 2, 3: 3}},
    "class_map_kind": {"class_map": 7},
    "class_map_empty": {"class_map": {}},
    "class_map_numpy": {"class_map": {np.int64(0): np.str_("1"), 1: 0}},
    "on_missing": {"on_missing": "drop"},
    "confirm": {"confirm": ["all"]},
    "pool": {"slices": {"region": REGION}, "pool": "region"},
    "by": {"by": ["region"]},
    "strip": {"strip": True},
}
for name, options in OPTIONS.items():
    for kind, sides in (("scores", (OLD, NEW)), ("classes", (OLD_CLASS, NEW_CLASS))):
        if kind == "scores" or name.startswith(
            ("gates", "slices_by", "clusters", "equi", "class_map")
        ):
            own = {} if name.startswith("labels") else {"labels": LABELS}
            ids = {} if name.startswith("ids") or "order" in name else {"ids": IDS}
            py(
                f"option_{name}_{kind}",
                lambda s=sides, o=own | ids | options: compare(*s, **o),
                {"ids.csv": {"id": IDS}},
            )


def gates():
    from churn_compare import Gate, Waiver

    some = (
        Gate("churn", 0.05),
        Gate("negative_flip_rate", 0.01, on="bound"),
        Gate("accuracy_gain", -0.005, "min", grouping="region"),
        Gate("churn", 0.2, on="interval", grouping="*", min_examples=30),
        Gate("churn", 0.2, grouping="class", group="1"),
        Gate("equivalent", 0.02),
    )
    return [gate.text for gate in some], compare(
        OLD_CLASS,
        NEW_CLASS,
        labels=LABELS,
        ids=IDS,
        slices={"region": REGION},
        gates=some,
        waivers=[
            Waiver("10", "known", "2999-01-01"),
            Waiver("17", "old", "2001-01-01"),
        ],
    ).to_dict()


py("gates", gates)
WRONG_GATES = (
    ("nothing", 0.1),
    ("churn", "x"),
    ("churn", True),
    ("churn", float("nan")),
    ("churn", 3),
    ("accuracy_gain", -2),
    ("churn", 0.1, "most"),
    ("churn", 0.1, "max", "end"),
    ("kappa", 0.1, "max", "estimate", "class"),
    ("accuracy_new", 0.5, "min", "bound", "class"),
    ("churn", 0.1, "max", "estimate", "", "a"),
    ("churn", 0.1, "max", "estimate", "*", "a"),
    ("churn", 0.1, "max", "estimate", "class", "", 0),
    ("equivalent", 0),
    ("equivalent", 0.1, "min"),
    ("chrun", 0.1),
    ("churns", 0.1, "max", "estimate", "class"),
)
for number, words in enumerate(WRONG_GATES):
    py(f"gate_{number:02d}", lambda w=words: __import__("churn_compare").Gate(*w))
py("waiver_date", lambda: __import__("churn_compare").Waiver("a", "b", "soon"))


def read_gate_file(kept):
    from churn_compare import read_gates, read_waivers

    calling(lambda: read_gates("g.toml"), kept, "gates")
    calling(lambda: [gate.text for gate in read_gates("g.toml")], kept, "texts")
    calling(lambda: read_waivers("g.toml"), kept, "waivers")
    calling(lambda: read_gates("gone.toml"), kept, "gone")


act(
    "python.gate_file",
    read_gate_file,
    {
        "g.toml": 'max-churn = "5%"\nmax-nfr = {limit = 0.01, on = "bound"}\n[slices.region]\nmax-nfr = 0.02\n[[waive]]\nid = "a"\nreason = " b "\nuntil = 2999-01-01',
    },
)


def quantities(kept):
    from churn_compare import QUANTITIES

    keep(
        kept,
        "quantities",
        {
            name: {
                k: of
                if isinstance(of, (str, int, float, bool, type(None)))
                else str(of)
                for k, of in vars(q).items()
                if not callable(of)
            }
            if hasattr(q, "__dict__")
            else str(q)
            for name, q in QUANTITIES.items()
        },
    )


act("python.quantities", quantities)
act(
    "python.names",
    lambda kept: keep(kept, "names", sorted(__import__("churn_compare").__all__)),
)
py("name_unknown", lambda: __import__("churn_compare").nothing)
py(
    "name_dir",
    lambda: [
        n
        for n in dir(__import__("churn_compare"))
        if n in __import__("churn_compare").__all__
    ],
)


def shows(kept):
    found = compare(
        OLD,
        NEW,
        labels=LABELS,
        ids=IDS,
        slices={"region": REGION},
        gates={"max_churn": 0.1, "max_nfr": 0.9},
    )
    for full in (False, True):
        keep(kept, f"terminal {full}", _printed(found.terminal(full=full)))
    kept.add("markdown", found.markdown())
    kept.add("junit", found.junit())
    kept.add("notebook", found._repr_html_().replace("><", ">\n<"))
    kept.add("repr", repr(found))
    keep(kept, "rows", found.rows())
    calling(found.to_pandas, kept, "pandas")
    calling(found.to_polars, kept, "polars")
    keep(
        kept,
        "facts",
        [
            found.passed,
            found.state,
            found.labelled,
            found.run_pairs,
            found.is_equivalent,
            found.decided,
            found.judged,
            sorted(found.groupings),
            found.suites()[0][0],
        ],
    )
    calling(lambda: found["nothing"], kept, "no such quantity")
    calling(lambda: [found["churn"], str(found["churn"])], kept, "quantity")
    found.save_json("a.json")
    keep(kept, "saved", json.loads(Path("a.json").read_text()))
    calling(lambda: found.save_html("folder"), kept, "a folder")
    found.save_html("a.html", command="some <command>")
    kept.add("page", Path("a.html").read_text().replace("><", ">\n<"))


def _printed(document):
    from churn_compare.documents import plain_text

    return plain_text(document, 60) + plain_text(document, 140)


act("python.shows", shows, {"folder": None})


def shows_outcomes(kept):
    found = outcomes(
        {"correct": RIGHT_OLD, "score": SCORE_OLD, "task": TASK},
        {"correct": RIGHT_NEW, "score": SCORE_NEW, "task": TASK},
        by=["task"],
        gates={"max_slice_nfr": 0.1},
    )
    keep(kept, "terminal", _printed(found.terminal(full=True)))
    kept.add("markdown", found.markdown())
    kept.add("junit", found.junit())
    kept.add("notebook", found._repr_html_().replace("><", ">\n<"))
    kept.add("repr", repr(found))
    keep(kept, "rows", found.rows())
    keep(kept, "names", [m.name for m in found.measures])
    calling(lambda: found["nothing"], kept, "no such measure")
    calling(lambda: found["correct"]["nothing"], kept, "no such quantity")


act("python.shows_outcomes", shows_outcomes)


def shows_versions(kept):
    from churn_compare import compare_versions

    found = compare_versions(
        "v", resamples=100, regressions=2, gates={"max_churn": 0.1}
    )
    kept.add("markdown", found.markdown())
    kept.add("junit", found.junit())
    kept.add("notebook", found._repr_html_().replace("><", ">\n<"))
    kept.add("repr", repr(found))
    keep(kept, "rows", found.rows())
    keep(
        kept,
        "facts",
        [
            found.names,
            found.labelled,
            found.passed,
            found.step_sum("churn"),
            found.suites()[1][0],
        ],
    )
    keep(kept, "result", found)
    calling(lambda: compare_versions("v", class_map={0: 1}), kept, "class map")
    calling(lambda: compare_versions("gone"), kept, "gone")
    calling(lambda: compare_versions("v/a.npz"), kept, "a file")
    calling(
        lambda: compare_versions(
            "v",
            order=("b", "a"),
            slices={"id": IDS, "region": REGION},
            clusters=USER,
            ids=IDS,
            labels=LABELS,
        ),
        kept,
        "arrays",
    )
    calling(
        lambda: compare_versions(
            "v",
            order=["a", "b"],
            clusters={"id": IDS, "u": USER},
            kind="logits",
            pool=None,
            level=0.9,
            seed=3,
        ),
        kept,
        "mapping",
    )


act(
    "python.shows_versions",
    shows_versions,
    {
        f"v/{n}.npz": {"ids": IDS, "labels": LABELS, "logits": of}
        for n, of in (("a", OLD), ("b", NEW), ("c", OLD + NEW))
    },
)

# The parts of a comparison


def parts(kept):
    import churn_compare as c

    old, new = c.read_side("old.csv"), c.read_side(Frame(side(NEW, order=ORDER)), "new")
    keep(kept, "side", {k: of for k, of in vars(old).items() if not callable(of)})
    pair = c.join(
        old,
        new,
        slices={"id": IDS, "region": REGION},
        clusters=dict(zip(IDS.tolist(), USER.tolist())),
    )
    keep(
        kept, "pair", {k: of for k, of in vars(pair).items() if k not in ("old", "new")}
    )
    scanned = c.scan(pair)
    keep(
        kept,
        "predicted",
        [scanned.old.predicted, scanned.new.predicted, scanned.paired],
    )
    keep(
        kept,
        "scanned",
        {k: of for k, of in vars(scanned.old).items() if not callable(of)},
    )
    # The module takes the place of the function of its name once it is imported.
    intervals = c.intervals
    intervals = getattr(intervals, "intervals", intervals)
    found = intervals(scanned, pair.labels)
    keep(kept, "intervals", found)
    keep(
        kept,
        "intervals 2",
        intervals(scanned, pair.labels, level=0.9, resamples=300, seed=2),
    )
    keep(
        kept,
        "intervals of clusters",
        intervals(scanned, pair.labels, clusters=pair.clusters),
    )
    keep(kept, "intervals without labels", intervals(scanned, None))
    keep(kept, "mcnemar", c.mcnemar_test(scanned, pair.labels))
    keep(kept, "noise", c.noise_test(scanned))
    level = {"level": 0.95} if "level" in signature(c.judge).parameters else {}
    some = [c.Gate("churn", 0.05), c.Gate("churn", 0.9, on="bound")]
    judged: list = []
    calling(lambda: judged.extend(c.judge(some, found, (), **level)), kept, "judge")
    for outcome in judged:
        kept.add("gate", outcome.line)
    keep(kept, "result", c.compare_pair(pair, resamples=100))
    runs = c.scan(
        c.join(*(c.read_side(of, n) for n, of in (("a", OLD_RUNS), ("b", NEW_RUNS))))
    )
    keep(kept, "noise of runs", c.noise_test(runs))
    keep(kept, "noise of clusters", c.noise_test(runs, clusters=USER, level=0.9))
    keep(
        kept,
        "noise of one",
        c.noise_test(c.scan(c.join(c.read_side(OLD, "a"), c.read_side(NEW_RUNS, "b")))),
    )


act("python.parts", parts, {"old.csv": side(OLD)})
py(
    "read_side_names",
    lambda: vars(
        __import__("churn_compare").read_side(
            {"predictions": ["cat", "dog"], "ids": [7, 8]}, "v1"
        )
    )["class_names"],
)

# Outcomes


def floor(*runs, **options):
    from churn_compare.outcomes import noise_floor

    return noise_floor(*runs, **options)


def read(given, **options):
    from churn_compare.outcomes import read_outcomes

    found = read_outcomes(given, **options)
    return {k: of for k, of in vars(found).items()}


TWO = (
    {"id": ITEMS, "score": SCORE_OLD, "task": TASK},
    {"id": ITEMS, "score": SCORE_NEW, "task": TASK},
)
RANKS = (
    {"ranking": rankings(1), "target": rankings(3)},
    {"ranking": rankings(2), "target": rankings(3)},
)
OUTCOMES = {
    "columns": lambda: outcomes(*TWO),
    "records": lambda: outcomes(*(records_of(of) for of in TWO)),
    "frames": lambda: outcomes(*(Frame(of) for of in TWO)),
    "frames_with_index": lambda: outcomes(
        *(Frame({"score": of["score"]}, of["id"] + 7) for of in TWO)
    ),
    "arrow": lambda: outcomes(*map(table, TWO)),
    "lazy": lambda: outcomes(*map(Lazy, TWO)),
    "top": lambda: outcomes(*RANKS, top=2),
    "top_sets": lambda: outcomes({"set": sets(1)}, {"set": sets(2)}, top=2),
    "relative": lambda: outcomes(
        {"value": SCORE_OLD}, {"value": SCORE_NEW}, tolerance=0.1, relative=True
    ),
    "tolerance": lambda: outcomes(
        {"value": SCORE_OLD}, {"value": SCORE_NEW}, tolerance=0.1
    ),
    "network": lambda: outcomes(
        {"value": SCORE_OLD[:, None], "target": SCORE_NEW},
        {"value": SCORE_NEW, "target": SCORE_NEW},
    ),
    "targets_as_texts": lambda: outcomes(
        {"value": [1, 2], "target": [1, 2]}, {"value": [1, 2], "target": ["1.0", "2"]}
    ),
    "tensor": lambda: outcomes(
        {"value": Tensor(SCORE_OLD)}, {"value": Tensor(SCORE_NEW)}
    ),
    "array": lambda: outcomes(SCORE_OLD, SCORE_NEW),
    "slices": lambda: outcomes(
        *TWO, slices={"id": ITEMS, "half": ITEMS % 2}, regressions=3
    ),
    "slices_rows": lambda: outcomes(
        {"score": SCORE_OLD}, {"score": SCORE_NEW}, slices={"half": ITEMS % 2}
    ),
    "cluster_of_slices": lambda: outcomes(
        *TWO,
        slices={"id": ITEMS, "u": [f"{i // 6}" if i else "" for i in ITEMS]},
        cluster="u",
    ),
    "grades": lambda: outcomes(
        {"score": ["A", "F"]}, {"score": ["F", "A"]}, grades={"A": 1, "F": 0}
    ),
    "lower": lambda: outcomes(
        {"points": SCORE_OLD},
        {"points": SCORE_NEW},
        score_columns=["points"],
        lower_is_better=["points"],
        pool=None,
    ),
    "filters": lambda: outcomes(
        {"wer,strict": SCORE_OLD},
        {"wer,strict": SCORE_NEW},
        score_columns=["wer,strict"],
        lower_is_better=["wer"],
    ),
    "names": lambda: (
        outcomes(
            {n: SCORE_OLD for n in LESS},
            {n: SCORE_NEW for n in LESS},
            score_columns=LESS,
        ).read
    ),
    "normalize": lambda: outcomes(
        {"answer": SAID_OLD}, {"answer": SAID_NEW}, normalize="all"
    ),
    "level": lambda: outcomes(*TWO, level=0.3),
    "same": lambda: outcomes(TWO[0], TWO[0]),
    "gates": lambda: outcomes(
        *TWO,
        by=["task"],
        gates={
            "max_share_worse": 0.2,
            "min_score_change": -0.1,
            "max_slice_share_worse": 0.5,
        },
    ),
    "dictionaries": lambda: outcomes(*(_encoded(of) for of in (SAID_OLD, SAID_NEW))),
    "noise_columns": lambda: floor(*TWO),
    "noise_arrays": lambda: floor(OLD_CLASS, NEW_CLASS),
    "noise_scores": lambda: floor(OLD, NEW, NEW + OLD),
    "noise_answers": lambda: floor(
        {"answer": SAID_OLD, "target": TARGET},
        {"answer": SAID_NEW, "target": TARGET},
        normalize="squad",
        regressions=3,
    ),
    "noise_values": lambda: floor(
        {"value": SCORE_OLD},
        {"value": SCORE_NEW},
        tolerance=0.1,
        relative=True,
        level=0.9,
    ),
    "noise_labels": lambda: floor(
        {"predictions": named(OLD_CLASS), "labels": named(LABELS, ["owl", *NAMES[1:]])},
        {"predictions": named(NEW_CLASS), "labels": named(LABELS, ["owl", *NAMES[1:]])},
    ),
    "noise_cluster": lambda: floor(
        {"id": IDS, "predictions": OLD_CLASS, "u": USER},
        {"id": IDS, "predictions": NEW_CLASS, "u": USER},
        cluster="u",
    ),
    "noise_one": lambda: floor(OLD_CLASS),
    "noise_nothing": lambda: floor({"x": [1]}, {"x": [2]}),
    "noise_grades": lambda: floor(
        {"score": ["A", "F"]}, {"score": ["F", "F"]}, grades={"A": 1, "F": 0}
    ),
    "read": lambda: read(
        {"id": [4, 4, 9, 9], "correct": [1, 0, 1, 1], "note": list("aabb")}, name="v1"
    ),
    "read_scores": lambda: read("old.jsonl", score_columns=["book"]),
    "read_targets": lambda: read("old.jsonl", target_column="task"),
    "read_nothing": lambda: read({"x": [1]}),
    "read_again": lambda: outcomes(
        *(
            __import__("churn_compare.outcomes", fromlist=["x"]).read_outcomes(of, "v")
            for of in TWO
        )
    ),
    "punctuation": lambda: [
        _flips(a, b, how) for a, b in PAIRS for how in ("text", "squad", "none")
    ],
}
PAIRS = [
    pair.replace("~", " ").split(":")
    for pair in (
        "A: A:the .5:5 -.5:.5 (-3):3 -x:x 2*3:2/3 [0,1):(0,1] n/a:n {}:[] 3!:3 C#:C The~cat!:cat it's:its 10%:10 Yes.:yes \u662f\u3002:\u662f \u00e9:e\u0301 IV:iv a~b:~a~~b~ \u212b:\u00e5"
    ).split()
]
LESS = (
    "loss nll perplexity wer cer mae mse_total rmse brier ece errors latency_ms duration cost fid toxicity bits_per_byte accuracy error_free loss_reduction negLoss "
    "word_error_rate reward f1 neg_wer inverse_distance distanceSaved"
).split()


def _encoded(texts):
    import pyarrow as pa

    return pa.table({"answer": pa.array(texts.tolist()).dictionary_encode()})


def _flips(a, b, how):
    old, new = ({"answer": [of, "q"], "target": [a, "q"]} for of in (a, b))
    found = outcomes(old, new, normalize=how)["answer"]
    return [
        a,
        b,
        how,
        found["negative_flip_rate"].value,
        found["share_reworded"].value if "share_reworded" in found.quantities else None,
    ]


for name, function in OUTCOMES.items():
    py(f"outcomes_{name}", function, {"old.jsonl": items(score=SCORE_OLD)})

# Assertions


def compatible(*sides, **options):
    from churn_compare.testing import assert_compatible

    return assert_compatible(*sides, **options)


ASSERTED = {
    "holds": {"max_churn": 0.5, "max_nfr": "40%"},
    "fails": {"max_nfr": "1%", "max_churn": 0.9},
    "bound": {"max_nfr": 0.1, "on": "bound"},
    "interval": {"max_nfr": 0.1, "on": "interval"},
    "interval_pass": {"max_nfr": 0.1, "on": "interval", "inconclusive": "pass"},
    "inconclusive_wrong": {"max_nfr": 0.1, "inconclusive": "exit"},
    "groups": {
        "max_slice_nfr": 0.1,
        "max_class_churn": 0.3,
        "min_slice_accuracy_gain": -0.2,
        "min_class_accuracy_gain": -0.2,
        "max_class_nfr": 0.3,
        "max_slice_churn": 0.9,
        "slices": {"region": REGION},
    },
    "small": {"max_class_nfr": 0.1, "min_examples": 500},
    "others": {
        "max_relative_nfr": 0.9,
        "min_accuracy_gain": -0.3,
        "max_ece_change": 0.5,
        "min_kappa": 0.2,
    },
    "excess": {"max_excess_churn": 0.1},
    "nothing": {},
    "typo": {"max_nrf": 0.1},
    "argument": {"slics": 1, "max_nfr": 0.1},
    "argument_far": {"zzzz": 1},
    "file": {"gates": "g.toml"},
    "file_and_limit": {"gates": "g.toml", "max_churn": 0.01},
    "regressions": {"max_nfr": 0, "regressions": 2},
    "no_regressions": {"max_nfr": 0, "regressions": 0},
    "limit": {"max_nfr": 5},
}
for name, options in ASSERTED.items():
    for kind, sides in (("scores", (OLD, NEW)), ("classes", (OLD_CLASS, NEW_CLASS))):
        if kind == "scores" or name in ("fails", "holds", "others"):
            py(
                f"assert_{name}_{kind}",
                lambda s=sides, o=options: compatible(
                    *s, **{"labels": LABELS, "ids": IDS} | o
                ),
                {
                    "g.toml": 'max-churn = 0.9\nmax-nfr = 0.001\n[[waive]]\nid = "10"\nreason = "x"\nuntil = 2999-01-01',
                },
            )
py(
    "assert_runs",
    lambda: compatible(
        OLD_RUNS, NEW_RUNS, labels=LABELS, max_nfr=0.001, max_excess_churn=0.5
    ),
)
py("assert_files", lambda: compatible("old.csv", "new.csv", max_nfr=0.001), pair())

TESTS = """
import numpy as np

def test_holds(model_update):
    found = model_update("old.csv", "new.csv", max_nfr="40%", max_churn=0.9)
    assert found["churn"].value > 0

def test_fails(model_update):
    model_update("old.csv", "new.csv", max_nfr="1%")

def test_error(model_update):
    model_update("old.csv", "gone.csv", max_nfr="1%")

def test_typo(model_update):
    model_update("old.csv", "new.csv", max_nrf="1%")
"""


def plugin(kept):
    import contextlib
    import io
    import re

    import pytest

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(
            [
                "-p",
                "no:cacheprovider",
                "-p",
                "churn_compare.pytest_plugin",
                "--rootdir",
                ".",
                "-q",
                "--junit-xml=j.xml",
                "test_frozen_update.py",
                "-p",
                "no:xdist",
                "--tb=short",
            ]
        )
    kept.add("code", int(code))
    text = Path("j.xml").read_text()
    kept.add(
        "properties",
        "\n".join(re.findall(r"<(?:property|testcase|failure|error)[^>]*>", text)),
    )
    lines = [
        line
        for line in said.getvalue().splitlines()
        if line.startswith(("E  ", "FAILED", "ERROR"))
    ]
    kept.add("said", "\n".join(lines))


act(
    "python.plugin",
    plugin,
    pair() | {"test_frozen_update.py": TESTS, "pytest.ini": "[pytest]\n"},
)

# The command's function in its other form


def as_subcommand(kept):
    from tests.freeze.session import run

    for words in (
        "old.csv new.csv",
        "old.csv new.csv --max-chrun 1",
        "gone.csv gone.csv --verbose",
    ):
        import contextlib
        import io

        import churn_compare.cli as cli

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            calling(lambda: cli.compare(words.split()), kept, words)
        kept.add("said", out.getvalue())
    run(kept, ["old.csv", "new.csv", "--html", "a.html"], written=("a.html",))


act("python.subcommand", as_subcommand, pair())

# Documents


def every_block(text, d):
    block = d.Table(
        [text, d.Column(text, align="left"), d.Column(text)],
        [
            (
                text,
                d.Cell(text, 0.5, below=text),
                d.Cell(text, mark=text, tone="doubt"),
            ),
            ("b", d.Cell("2", 0.1, shade=0.4, link="here"), "c"),
        ],
        title=text,
        caption=text,
        sortable=True,
    )
    grouped = d.Table(["a", d.Column(text, group=text)], [(text, text)])
    return [
        d.Text(text, "soft"),
        d.Text((d.Strong(text), f" {text}")),
        d.Rows([d.Text((d.Strong(text, "good"), text), "good")]),
        d.Rows([d.Text("one"), d.Text("two")], ordered=True),
        d.bullets([text]),
        block,
        d.Facts({text: text}),
        d.Code(text),
        d.Terms([d.Term(text, text, text, text)]),
        d.Section(text, [d.Grid([grouped, d.Card(text, [d.Text(text)])])], id="here"),
        d.Fold(
            text,
            [d.Figure("<svg/>", text, text), d.Figure(image=b"\\x89PNG", words=text)],
        ),
        *(
            [
                *(
                    d.Only([form], [d.Text(f"only {form}")])
                    for form in ("html", "markdown", "terminal")
                ),
                d.Only(["terminal"], [d.Text("wide")], from_width=100),
                d.Only(["terminal"], [d.Text("narrow")], below_width=100),
            ]
            if hasattr(d, "Only")
            else ()
        ),
    ]


EVIL = "<b>&\"'\x1b[31m*_`|\u202e@x"


def documents(kept):
    import churn_compare.documents as d

    for name, text in (("evil", EVIL), ("plain", "some words")):
        calling(lambda: every_block(text, d) and None, kept, f"{name} blocks")
        document = d.Document(text, [text], every_block(text, d), text)
        for width in (60, 140):
            calling(lambda: d.plain_text(document, width), kept, f"{name} {width}")
        calling(lambda: d.markdown(document), kept, f"{name} markdown")
        calling(lambda: d.markdown(document, level=3), kept, f"{name} markdown 3")
        calling(
            lambda: d.html_page(document).replace("><", ">\n<"), kept, f"{name} page"
        )
        calling(lambda: d.html_fragment(document.blocks), kept, f"{name} fragment")
        calling(lambda: _levels(document), kept, f"{name} levels")
    calling(lambda: d.json_text({"a": [1, 2.5, float("nan")], "b": "ä"}), kept, "json")
    calling(
        lambda: d.plain_values({"a": (float("nan"), 1), 2: np.arange(3)}),
        kept,
        "plain values",
    )
    calling(lambda: d.plain((d.Strong("ERM"), ": no effect.")), kept, "plain")
    calling(
        lambda: sorted(d.write_files("f", {"a.txt": "b", "c.txt": b"d"})), kept, "files"
    )
    calling(lambda: sorted(d.__all__), kept, "names")


def _levels(document):
    from churn_compare.documents import plain_text

    return [
        plain_text(document.at(level), 80) for level in ("verdict", "summary", "full")
    ]


act("python.documents", documents)


def tables(kept):
    import churn_compare.documents as d

    calling(
        lambda: d.csv_text(
            d.Records(["a", "b"], [{"a": 1, "b": 'x, "y"'}, {"a": 2.5, "b": None}])
        ),
        kept,
        "records 1",
    )
    calling(
        lambda: d.table_files(
            d.Document("t", [], [d.Text("x")], data=d.Records(["a"], [{"a": 1}]))
        ),
        kept,
        "files",
    )


act("python.tables", tables)


def page_style(kept):
    import re

    found = compare(OLD_CLASS, NEW_CLASS, labels=LABELS)
    found.save_html("a.html")
    page = Path("a.html").read_text()
    for what in re.findall(r"<style>.*?</style>", page, re.DOTALL):
        kept.add("style", what.replace("<style>", "").replace("</style>", ""))


act("python.page_style", page_style)

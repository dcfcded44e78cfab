"""What coverage found to be run by no other comparison."""

import json

import numpy as np

from tests.freeze.case_python import (
    Frame,
    compare,
    floor,
    outcomes,
    table,
)
from tests.freeze.case_store import shards
from tests.freeze.inputs import (
    BOOK,
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
    SCORE_NEW,
    SCORE_OLD,
    USER,
    C,
    N,
    items,
    named,
    pair,
    side,
    stacked,
)
from tests.freeze.registry import act, cli, py, refused
from tests.freeze.session import calling, keep

BOTH, NPZ, LINES = "old.csv new.csv", "old.npz new.npz", "old.jsonl new.jsonl"
RNG = np.random.default_rng(91)


def npz(old, new, **more):
    """Two archives."""
    return {
        "old.npz": OWN | {"logits": old} | more,
        "new.npz": OTHER | {"logits": new} | more,
    }


# Runs that belong together, many runs, runs that say little

APART = 3 * RNG.normal(size=(9, N, C)) + 2 * np.eye(C)[LABELS]
NEAR = APART + 0.4 * RNG.normal(size=APART.shape)
cli(
    "rare.paired", f"{NPZ} --max-excess-churn 50%", npz(APART[:4], NEAR[:4]), pages=True
)
cli("rare.paired_nine", NPZ, npz(APART, NEAR), pages=True)
cli(
    "rare.paired_classes",
    f"{NPZ} --max-nfr 1%",
    {
        "old.npz": {"ids": IDS, "labels": LABELS, "predictions": APART.argmax(-1)},
        "new.npz": {"ids": IDS, "labels": LABELS, "predictions": NEAR.argmax(-1)},
    },
)
cli(
    "rare.paired_no_labels",
    NPZ,
    {
        "old.npz": {"ids": IDS, "logits": APART[:3]},
        "new.npz": {"ids": IDS, "logits": NEAR[:3]},
    },
    pages=True,
)
cli("rare.paired_equal", NPZ, npz(APART[:3], APART[:3]))
cli(
    "rare.runs_in_clusters",
    f"{BOTH} --cluster user",
    {
        "old.csv": stacked(APART[:5], user=USER),
        "new.csv": stacked(OLD_RUNS, 5, user=USER),
    },
)
cli("rare.six_against_seven", NPZ, npz(APART[:6] + OLD, APART[2:9] + NEW))
cli(
    "rare.six_against_seven_clusters",
    f"{BOTH} --cluster user",
    {
        "old.csv": stacked(APART[:6] + OLD, user=USER),
        "new.csv": stacked(APART[2:9] + NEW, 6, user=USER),
    },
)
LONE = np.stack([OLD, OLD + 0.01, OLD + 0.02, np.roll(OLD, 1, axis=1)])
cli(
    "rare.one_run_decides",
    NPZ,
    npz(np.stack([OLD] * 3), np.stack([OLD, OLD, 4 * np.roll(OLD, 1, axis=1)])),
)
cli(
    "rare.one_run_decides_more",
    NPZ,
    npz(OLD_RUNS, np.stack([OLD_RUNS[0], OLD_RUNS[1], np.roll(OLD, 1, axis=1)])),
)
cli("rare.runs_hardly_differ", NPZ, npz(LONE[:3], LONE[:3] + 1e-6))
for decided in (OLD_RUNS.argmax(-1), (OLD_RUNS + [0, 0.8, 0, 0]).argmax(-1)):
    cli(
        f"rare.decisions_of_runs_{int(decided[0, 0] != OLD_RUNS[0, 0].argmax())}{int(decided.sum())}",
        NPZ,
        {
            "old.npz": OWN | {"logits": OLD_RUNS, "preds": decided},
            "new.npz": OTHER | {"logits": NEW_RUNS, "preds": NEW_RUNS.argmax(-1)},
        },
    )
cli(
    "rare.decisions_of_stopped_runs",
    NPZ,
    {
        "old.npz": OWN
        | {
            "logits": OLD_RUNS,
            "preds": OLD_RUNS.argmax(-1),
            "meta": json.dumps({"stopped": [1]}),
        },
        "new.npz": OTHER,
    },
)
cli(
    "rare.decisions_of_runs_in_a_table",
    BOTH,
    {
        name: stacked(of) | {"prediction": of.argmax(-1).reshape(-1)}
        for name, of in (("old.csv", OLD_RUNS), ("new.csv", NEW_RUNS))
    },
)
RUN_NAMES = {
    name: {k: x for k, x in stacked(of).items() if not k.startswith("logit_")}
    | {
        "label": named(np.tile(LABELS, 3)),
        "prediction": named(of.argmax(-1).reshape(-1)),
    }
    for name, of in (("old.csv", OLD_RUNS), ("new.csv", NEW_RUNS))
}
cli("rare.names_of_runs", BOTH, RUN_NAMES)
HOLED = OLD_RUNS.copy()
HOLED[1, 3:6] = np.nan
refused("rare_nan_in_a_run", NPZ, npz(HOLED, NEW))

# Scores and classes

ZERO = np.where(np.eye(C)[LABELS] * (np.arange(N) < 2)[:, None] > 0, 0.0, OLD_PROBS)
ZERO = ZERO / ZERO.sum(1, keepdims=True)
cli(
    "rare.label_of_probability_0",
    BOTH,
    {"old.csv": side(ZERO, "prob_"), "new.csv": side(NEW_PROBS, "prob_")},
)
cli(
    "rare.better_probabilities",
    NPZ,
    npz(3 * RNG.normal(size=(N, C)), 3 * np.eye(C)[LABELS]),
    pages=True,
)
cli(
    "rare.worse_probabilities",
    NPZ,
    npz(3 * np.eye(C)[LABELS], 30 * RNG.normal(size=(N, C))),
)
cli("rare.logits_not_negative", NPZ, npz(np.abs(OLD) + 3, np.abs(NEW) + 3))
cli(
    "rare.one_number_per_example",
    NPZ,
    {
        "old.npz": {"ids": IDS, "probs": OLD_PROBS[:, 1], "y_pred": OLD_CLASS},
        "new.npz": {"ids": IDS, "probs": NEW_PROBS[:, 1:2], "y_pred": NEW_CLASS},
    },
)
cli(
    "rare.one_number_in_three_axes",
    NPZ,
    {
        "old.npz": {
            "ids": IDS,
            "probs": OLD_PROBS[:, 1][None, :, None],
            "y_pred": OLD_CLASS,
        },
        "new.npz": {"ids": IDS, "probs": NEW_PROBS[:, 1], "y_pred": NEW_CLASS},
    },
    bare=True,
)
cli(
    "rare.kind_of_another",
    f"{BOTH} --kind logits",
    {
        n: side(of, "prob_")
        for n, of in (("old.csv", OLD_PROBS), ("new.csv", NEW_PROBS))
    },
    bare=True,
)
cli(
    "rare.prediction_column_of_scores",
    f"{NPZ} --prediction-column probs",
    {
        "old.npz": {"ids": IDS, "probs": OLD_PROBS, "x": OLD},
        "new.npz": {"ids": IDS, "probs": NEW_PROBS, "x": OLD},
    },
)
cli("rare.meta_of_another_tool", NPZ, npz(OLD, NEW, meta="not JSON"))
cli("rare.meta_list", NPZ, npz(OLD, NEW, meta="[1]"))
py(
    "rare_meta_mapping",
    lambda: compare(OWN | {"logits": OLD_RUNS, "meta": {"stopped": [0]}}, OTHER),
)
MANY_ROWS = RNG.integers(0, 60, 4000)
MANY_NEW = np.where(RNG.random(4000) < 0.5, RNG.integers(0, 60, 4000), MANY_ROWS)
cli(
    "rare.many_flows",
    NPZ,
    {
        "old.npz": {"ids": np.arange(4000), "predictions": MANY_ROWS},
        "new.npz": {"ids": np.arange(4000), "predictions": MANY_NEW},
    },
    pages=True,
)
cli(
    "rare.many_groups",
    f"{BOTH} --by g",
    {
        name: {
            "id": np.arange(4000),
            "label": MANY_ROWS,
            "prediction": of,
            "g": np.arange(4000) % 190,
        }
        for name, of in (("old.csv", MANY_ROWS), ("new.csv", MANY_NEW))
    },
    pages=True,
)
cli(
    "rare.label_names_of_the_old_side",
    f"{BOTH} --class-map m.json --labels y.csv",
    {
        "old.csv": side(classes=named(OLD_CLASS, ["tabby", *NAMES[1:]]), labels=None),
        "new.csv": side(classes=named(NEW_CLASS), labels=None),
        "m.json": '{"tabby": "cat"}',
        "y.csv": {"id": IDS, "label": named(LABELS, ["tabby", *NAMES[1:]])},
    },
)
cli(
    "rare.label_of_the_old_side_alone",
    f"{NPZ} --class-map m.json",
    {
        "old.npz": {"ids": IDS, "labels": LABELS, "logits": OLD[:, :3]},
        "new.npz": {"ids": IDS, "logits": NEW},
        "m.json": '{"0": 0, "1": 1, "2": 2, "3": 3}',
    },
)
refused(
    "rare_label_beyond_names",
    NPZ,
    {
        "old.npz": OWN | {"class_names": np.array(NAMES), "labels": LABELS + 1},
        "new.npz": {"ids": IDS, "logits": NEW, "class_names": np.array(NAMES)},
    },
)
refused(
    "rare_label_name_where_numbers",
    f"{NPZ} --class-map m.json --labels y.csv",
    {
        "old.npz": {"ids": IDS, "logits": OLD, "class_names": np.array(NAMES)},
        "new.npz": {"ids": IDS, "logits": NEW},
        "m.json": '{"cat": 0, "cow": 1, "dog": 2, "emu": 3}',
        "y.csv": {"id": IDS, "label": named(LABELS)},
    },
)
refused(
    "rare_unknown_in_texts",
    BOTH,
    {
        "old.csv": side(OLD_PROBS, "prob_", classes=OLD_CLASS > 1),
        "new.csv": side(NEW_PROBS, "prob_"),
    },
)
cli(
    "rare.truths_decide",
    BOTH,
    {
        name: {
            "id": IDS,
            "label": LABELS > 1,
            "prob_no": of[:, :2].sum(1),
            "prob_yes": of[:, 2:].sum(1),
            "prediction": of[:, 2:].sum(1) > 0.5,
        }
        for name, of in (("old.csv", OLD_PROBS), ("new.csv", NEW_PROBS))
    },
    bare=True,
)
py(
    "rare_truths_decide",
    lambda: compare(
        *(
            {
                "logits": of[:, :2],
                "class_names": ["no", "yes"],
                "predictions": of[:, :2].argmax(1) > 0,
            }
            for of in (OLD, NEW)
        )
    ),
)
py(
    "rare_truths_next_to_truths",
    lambda: compare(
        *(
            {
                "logits": of[:, :2],
                "class_names": ["false", "true"],
                "predictions": of[:, :2].argmax(1) > 0,
            }
            for of in (OLD, NEW)
        )
    ),
)

# Tables

for name, text in {
    "one_mark_fits": "id;label;prediction,x\n1;2;3\n4;5;6\n7;8;9\n",
    "tabs_by_name": None,
    "none_fits": "a,b;c\n1,2;3;4\n5\n6,7;8\n",
    "number_in_names": "1.5,label\n2.5,a\n3.5,b\n",
    "long_latin": "id,prediction\n" + "".join(f"e{i},a\n" for i in range(400_000)),
}.items():
    if text:
        content = text.encode() if name != "long_latin" else text.encode() + b"\xe9,a\n"
        refused(
            f"rare_text_{name}",
            "a.csv b.csv",
            {"a.csv": content, "b.csv": pair()["new.csv"]},
        )
cli(
    "rare.tabs_by_name",
    "old.tsv new.tsv",
    {
        name: "id\tlabel, y\tprediction\n"
        + "".join(f"{i}\t{y},{y}\t{p}\n" for i, y, p in zip(IDS, LABELS, of))
        for name, of in (("old.tsv", OLD_CLASS), ("new.tsv", NEW_CLASS))
    },
    bare=True,
)
cli(
    "rare.commas_in_texts",
    "old.tsv new.tsv --score-column x",
    {
        name: "id\tx\n"
        + "".join(
            f"{i}\t{str(round(float(s), 3)).replace('.', ',')}\n"
            for i, s in zip(ITEMS, of)
        )
        for name, of in (("old.tsv", SCORE_OLD), ("new.tsv", SCORE_NEW))
    },
)
cli(
    "rare.commas_in_quotes",
    BOTH,
    {
        name: "id;prediction;note\n"
        + "".join(f'{i};{p};"1,{p}"\n' for i, p in zip(IDS, of))
        for name, of in (("old.csv", OLD_CLASS), ("new.csv", NEW_CLASS))
    },
)
refused("rare_blank_names", "a.csv b.csv", {"a.csv": "\n\n", "b.csv": "x\n"})
refused(
    "rare_null_lists",
    "a.parquet b.parquet",
    {n: lambda path: _null_lists(path) for n in ("a.parquet", "b.parquet")},
)


def _null_lists(path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(
        pa.table(
            {"id": [1, 2], "probs": pa.array([None, None], pa.list_(pa.float64()))}
        ),
        path,
    )


for name, columns in {
    "dates": {
        "id": [1, 2],
        "prediction": np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
    },
    "bytes": {"id": [1, 2], "prediction": [b"a", b"\xe9"]},
    "bytes_read": {"id": [1, 2], "prediction": [b"a", b"b"]},
    "decimals": {"id": [1, 2], "prediction": [None, None]},
}.items():
    refused(
        f"rare_parquet_{name}",
        "a.parquet a.parquet --confirm same-file",
        {"a.parquet": lambda path, c=columns: _parquet(path, c)},
    )


def _parquet(path, columns):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)


refused(
    "rare_latin_parquet",
    "a.parquet a.parquet --confirm same-file",
    {"a.parquet": lambda path: _latin(path)},
)


def _latin(path):
    import pyarrow as pa
    from pyarrow import parquet

    bad = pa.Array.from_buffers(
        pa.string(),
        2,
        [
            None,
            pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes()),
            pa.py_buffer(b"\xe9a"),
        ],
    )
    parquet.write_table(pa.table({"id": [1, 2], "prediction": bad}), path)


py("rare_damaged_arrow", lambda: compare(_damaged(), _damaged()))


def _damaged():
    import pyarrow as pa

    bad = pa.Array.from_buffers(
        pa.string(),
        2,
        [
            None,
            pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes()),
            pa.py_buffer(b"\xe9a"),
        ],
    )
    return pa.table({"id": [1, 2], "prediction": bad})


def _bf16(values):
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16)


MAPPINGS = {
    "columns_of_scores": lambda: compare(*(side(of) for of in (OLD, NEW))),
    "columns_of_bfloat16": lambda: compare(
        *(
            {"id": IDS, "label": LABELS}
            | {f"logit_{c}": _bf16(of[:, c]) for c in range(C)}
            for of in (OLD, NEW)
        )
    ),
    "columns_of_lengths": lambda: compare(
        {"id": IDS, "logit_0": OLD[:, 0], "logit_1": OLD[:5, 1]}, OTHER
    ),
    "columns_of_shapes": lambda: compare(
        {"id": IDS, "logit_0": np.zeros((2, 2, 2)), "logit_1": OLD[:, 1]}, OTHER
    ),
    "ids_of_objects": lambda: compare(
        {"ids": [object(), 1], "prediction": [0, 1]}, [0, 1]
    ),
    "ids_of_mixed": lambda: compare(
        {"ids": ["a", 1], "prediction": [0, 1]}, {"ids": ["a", 1], "prediction": [1, 1]}
    ),
    "ids_of_bytes": lambda: compare(
        {"ids": np.array([b"a", b"b"]), "prediction": [0, 1]},
        {"ids": ["b", "a"], "prediction": [1, 1]},
    ),
    "ids_unsigned": lambda: compare(
        *(
            {"ids": np.array([2**63 + 5, 2, 3], np.uint64), "prediction": of}
            for of in ([0, 1, 1], [0, 1, 0])
        )
    ),
    "ids_empty": lambda: compare(
        {"ids": [], "prediction": []}, {"ids": [], "prediction": []}
    ),
    "index_of_floats": lambda: compare(
        *(Frame({"prediction": of}, np.arange(N) / 2) for of in (OLD_CLASS, NEW_CLASS))
    ),
    "index_of_dates": lambda: compare(
        *(
            Frame({"prediction": of}, np.arange(N).astype("M8[D]"))
            for of in (OLD_CLASS, NEW_CLASS)
        )
    ),
    "index_of_objects": lambda: compare(
        *(
            Frame(
                {"prediction": of},
                np.array([(i,) for i in range(N)] + [None], object)[:N],
            )
            for of in (OLD_CLASS, NEW_CLASS)
        )
    ),
    "index_twice": lambda: compare(
        *(Frame({"prediction": of}, np.zeros(N, int)) for of in (OLD_CLASS, NEW_CLASS))
    ),
    "index_counts_and_other": lambda: compare(
        Frame({"prediction": OLD_CLASS}, range(N)),
        Frame({"prediction": NEW_CLASS}, ORDER),
    ),
    "index_counts_and_ids": lambda: compare(
        Frame({"prediction": OLD_CLASS}, range(N)),
        Frame({"prediction": NEW_CLASS}, IDS),
    ),
    "labels_with_ids_only_there": lambda: compare(
        OLD, NEW, labels={"id": IDS, "label": LABELS}
    ),
    "labels_lengths": lambda: compare(
        OWN, OTHER, labels={"id": IDS, "label": LABELS[:5]}
    ),
    "labels_only_column": lambda: compare(OLD, NEW, labels={"x": LABELS}),
    "labels_dates": lambda: compare(OLD, NEW, labels=np.arange(N).astype("M8[D]")),
    "labels_strings": lambda: compare(OLD, NEW, labels=LABELS.astype(str)),
    "labels_floats_as_texts": lambda: compare(
        OLD, NEW, labels=(LABELS / 2).astype(str)
    ),
    "labels_none": lambda: compare(OLD, NEW, labels=[None] * N),
    "clusters_of_mapping": lambda: compare(
        {"ids": IDS, "predictions": OLD_CLASS, "u": USER},
        {"ids": IDS, "predictions": NEW_CLASS},
        clusters="u",
    ),
    "clusters_of_rows": lambda: compare(
        {"predictions": OLD_CLASS, "u": USER}, {"predictions": NEW_CLASS}, clusters="u"
    ),
    "clusters_of_array": lambda: compare(OLD_CLASS, NEW_CLASS, clusters="u"),
    "clusters_of_lists": lambda: compare(
        OLD_CLASS.tolist(), NEW_CLASS.tolist(), clusters="u"
    ),
    "clusters_of_lengths": lambda: compare(
        {"ids": IDS, "predictions": OLD_CLASS, "u": USER[:7]},
        {"ids": IDS, "predictions": NEW_CLASS},
        clusters="u",
    ),
    "clusters_of_parquet": lambda: compare(
        "old.parquet", "new.parquet", clusters="user"
    ),
    "clusters_intersect": lambda: compare(
        {"ids": IDS, "predictions": OLD_CLASS},
        {"ids": IDS, "predictions": NEW_CLASS},
        clusters=dict(zip(IDS[:100].tolist(), USER[:100].tolist())),
        on_missing="intersect",
    ),
    "regressions_negative": lambda: compare(OLD, NEW, labels=LABELS, regressions=-1),
    "classes_slice": lambda: compare(
        OLD_CLASS,
        NEW_CLASS,
        labels=LABELS,
        slices={"Class ": REGION},
        gates={"max_slice_churn": 0.9},
    ),
    "decisions_of_lengths": lambda: compare(
        {"logits": OLD, "predictions": OLD_CLASS[:9]}, NEW
    ),
    "pool_one": lambda: compare(
        OLD, NEW, labels=LABELS, slices={"r": ["a"] * N}, pool="r"
    ),
    "pool_gaps": lambda: compare(
        OLD,
        NEW,
        labels=LABELS,
        slices={"r": np.where(np.arange(N) % 3, REGION, "")},
        pool="r",
    ),
    "pool_one_and_gaps": lambda: compare(
        OLD,
        NEW,
        labels=LABELS,
        slices={"r": np.where(np.arange(N) % 3, "a", "")},
        pool="r",
    ),
    "large_numbers": lambda: compare(1e30 * OLD, 1e30 * NEW, labels=LABELS),
    "huge_numbers": lambda: compare(1e300 * OLD, 1e300 * NEW, labels=LABELS),
    "two_examples": lambda: compare([0, 1], [0, 0], labels=[0, 1]),
    "outcome_strings": lambda: outcomes(
        {"value": ["1.5", "2", " "]},
        {"value": ["1.5", "3", "1"]},
        on_missing="intersect",
    ),
    "outcome_booleans": lambda: outcomes(
        {"value": [True, False]}, {"value": [True, True]}
    ),
    "outcome_nothing_left": lambda: outcomes(
        {"id": [1], "score": [None]},
        {"id": [1], "score": [1.0]},
        on_missing="intersect",
    ),
    "outcome_correct_of_one": lambda: outcomes(
        {"correct": [1, 0]}, {"score": [1, 0], "correct": [1, 0]}
    ),
    "outcome_correct_and_score": lambda: outcomes(
        {"x": [1, 0]}, {"x": [1, 0.5]}, score_columns=["x"]
    ),
    "outcome_empty": lambda: outcomes({"id": [], "score": []}, {"id": [], "score": []}),
    "outcome_bytes": lambda: outcomes(
        {"answer": [b"\xe9", b"a"]}, {"answer": [b"a", b"b"]}
    ),
    "outcome_lists_of_dicts": lambda: outcomes(
        {"set": [[{"a": 1}]]}, {"set": [[{"a": 2}]]}
    ),
    "outcome_structs": lambda: outcomes(
        table({"answer": [{"a": 1}, {"a": 2}]}), table({"answer": [{"a": 1}, {"a": 3}]})
    ),
    "outcome_gate_direction": lambda: outcomes(
        {"score": [1.0, 2]}, {"score": [1.0, 3]}, gates={"max_share_reworded": 0.1}
    ),
    "outcome_categories": lambda: outcomes(
        _categories("A", "B"), _categories("B", "B"), grades={"A": 1, "B": 0}
    ),
    "noise_clusters_without_ids": lambda: floor(
        {"predictions": OLD_CLASS, "u": USER},
        {"predictions": NEW_CLASS, "u": USER},
        cluster="u",
    ),
    "noise_clusters_of_runs": lambda: floor(
        {"predictions": OLD_RUNS.argmax(-1), "u": USER[:7]}, cluster="u"
    ),
    "noise_texts": lambda: floor(
        {"answer": ["a", "b"], "correct": [1, 0]},
        {"answer": ["a", "c"], "correct": [1, 1]},
    ),
}


def _categories(*texts):
    import pyarrow as pa

    return pa.table({"score": pa.array([*texts]).dictionary_encode()})


for name, function in MAPPINGS.items():
    py(
        f"rare_{name}",
        function,
        {"old.parquet": side(OLD, user=USER), "new.parquet": side(NEW, user=USER)},
    )

# Files of outcomes or classes

for name, columns, words in (
    ("p_columns_and_correct", "P", ""),
    ("p_value_and_correct", "V", ""),
    ("label_score_text", "T", ""),
    ("label_score_missing", "M", ""),
    ("correct_and_prediction", "C", ""),
    ("correct_and_prob", "B", ""),
    ("label_names_and_score", "L", ""),
    ("y_true_score", "Y", ""),
):
    files = {
        "P": {"id": IDS, "label": LABELS, "correct": OLD_CLASS == LABELS}
        | {f"p_{c}": OLD_PROBS[:, c] for c in range(C)},
        "V": {
            "id": IDS,
            "label": LABELS,
            "correct": OLD_CLASS == LABELS,
            "p_value": OLD_PROBS[:, 0],
            "p_adj": OLD_PROBS[:, 0],
        },
        "T": {"id": IDS, "label": LABELS, "score": named(OLD_CLASS)},
        "M": {"id": IDS, "label": np.where(LABELS, LABELS, np.nan), "score": OLD[:, 0]},
        "C": {
            "id": IDS,
            "label": LABELS,
            "prediction": OLD_CLASS,
            "correct": OLD_CLASS == LABELS,
        },
        "B": {"id": IDS, "correct": OLD_CLASS == LABELS}
        | {f"prob_{c}": OLD_PROBS[:, c] for c in range(C)},
        "L": {"id": IDS, "label": named(LABELS), "score": OLD_PROBS.max(1)},
        "Y": {"id": IDS, "target": LABELS, "score": 10 * OLD[:, 0]},
    }[columns]
    new = {n: of[::-1] if n not in ("id", "label") else of for n, of in files.items()}
    cli(
        f"rare.outcome_or_class_{name}",
        f"{BOTH} {words}",
        {"old.csv": files, "new.csv": new},
        bare=True,
    )
refused(
    "rare_inspect_json",
    "old.json new.json",
    {
        n: '{"version": 2, "status": "x", "eval" : {}, "samples": null, "eval": 3}'
        for n in ("old.json", "new.json")
    },
)
refused(
    "rare_inspect_list",
    "old.json new.json",
    {n: '{"version": 2, "eval": {"eval": 1}} ' for n in ("old.json", "new.json")},
)

# Long answers

SENTENCES = [
    f"The answer to question {i} is found by adding {i} and {i * 3}, which makes {i * 4} in all."
    for i in ITEMS
]
OTHERS = [
    text if i % 5 else text.replace("adding", "a sum of").replace("in all", "")
    for i, text in enumerate(SENTENCES)
]
cli(
    "rare.long_answers",
    LINES,
    {"old.jsonl": items(answer=SENTENCES), "new.jsonl": items(answer=OTHERS)},
    pages=True,
)
cli(
    "rare.long_answers_full",
    f"{LINES} --full",
    {
        "old.jsonl": items(answer=SENTENCES, target=SENTENCES),
        "new.jsonl": items(answer=OTHERS, target=SENTENCES),
    },
    bare=True,
)
py(
    "rare_long_answers",
    lambda: (
        outcomes(
            {"answer": SENTENCES},
            {"answer": [f"{t} x" for t in SENTENCES]},
            regressions=60,
        )
        ._repr_html_()
        .replace("><", ">\n<")
    ),
)
cli(
    "rare.word_answers",
    LINES,
    {
        "old.jsonl": items(answer=SENTENCES, target=SENTENCES),
        "new.jsonl": items(
            answer=[f"{' '.join(['word'] * i)}" for i in ITEMS], target=SENTENCES
        ),
    },
    pages=True,
)

# Parts of the package


def estimated(kept):
    from churn_compare.outcomes import Measure, estimate

    for measure in (
        Measure(
            "correct",
            "correct",
            RIGHT_OLD[None].astype(float),
            RIGHT_NEW[None].astype(float),
        ),
        Measure("score", "score", SCORE_OLD[None], SCORE_NEW[None]),
        Measure("value", "value", SCORE_OLD[None], SCORE_NEW[None]),
        Measure(
            "score",
            "score",
            np.stack([SCORE_OLD, SCORE_NEW]),
            np.stack([SCORE_NEW, SCORE_NEW + 0.1]),
            lower_is_better=True,
        ),
    ):
        for clusters in (None, BOOK):
            calling(
                lambda: {k: of for k, of in vars(estimate(measure, clusters)).items()},
                kept,
                f"{measure.name} {clusters is None}",
            )
        keep(
            kept,
            "text",
            [
                measure.text("old", 3),
                measure.text("new", 3),
                measure.examples,
                measure.judged,
                measure.decided,
                measure.sign,
            ],
        )


act("rare.estimate", estimated)


def pieces(kept):
    import churn_compare as c

    one = c.Interval(0.2, 0.1, 0.3)
    calling(
        lambda: c.judge([c.Gate("kappa", 0.5)], {"churn": one}, (), level=0.95),
        kept,
        "no such number",
    )
    calling(
        lambda: (
            c.judge(
                [c.Gate("churn", 0.5, on="bound")],
                {"churn": c.Interval(0.2, float("nan"), float("nan"))},
                (),
                level=0.95,
            )[0].line
        ),
        kept,
        "no interval",
    )
    calling(
        lambda: (
            c.judge(
                [c.Gate("churn", 0.5)],
                {"churn": c.Interval(float("nan"), float("nan"), float("nan"))},
                (),
                level=0.95,
            )[0].line
        ),
        kept,
        "not defined",
    )
    calling(
        lambda: c.judge([c.Gate("excess_churn", 0.5)], {"churn": one}, (), level=0.95),
        kept,
        "no noise",
    )
    calling(
        lambda: (
            c.judge(
                [c.Gate("churn", 0.5, grouping="class")], {"churn": one}, (), level=0.95
            )[0].line
        ),
        kept,
        "no groups",
    )
    calling(
        lambda: c.GateOutcome("gate", "", 0.1, 0.2, True, "line").state, kept, "state"
    )
    sides = [
        c.Side(n, "classes", np.array([of]))
        for n, of in (("a", [0, 1, 7]), ("b", [0, 1, -1]))
    ]
    for new in sides:
        calling(
            lambda: (
                c.scan(
                    c.Pair(
                        c.Side("o", "classes", np.array([[0, 1, 1]])),
                        new,
                        np.arange(3),
                        3,
                    )
                ).new.predicted
            ),
            kept,
            f"scan {new.name}",
        )
    pair = c.join(
        c.read_side(OLD_CLASS, "a"),
        c.read_side(NEW_CLASS, "b"),
        labels=LABELS,
        clusters=USER,
    )
    keep(
        kept,
        "at",
        {
            k: of
            for k, of in vars(pair.at(np.array([3, 5, 40]))).items()
            if k not in ("old", "new")
        },
    )
    keep(kept, "names", [pair.class_name(2), pair.examples, pair.scored])
    scanned = c.scan(pair)
    calling(
        lambda: c.compare_pair(
            pair, scanned=scanned, resamples=100, gates=[c.Gate("churn", 0.1)]
        ),
        kept,
        "compare_pair",
    )
    intervals = c.intervals
    intervals = getattr(intervals, "intervals", intervals)
    calling(lambda: intervals(scanned, LABELS, level=1.5), kept, "level")
    calling(
        lambda: c.mcnemar_test(scanned, LABELS, clusters=USER),
        kept,
        "mcnemar of clusters",
    )


act("rare.pieces", pieces)


def ordered(kept):
    from churn_compare import store

    found = store.read_shards("p")
    for ids in (IDS, IDS + 1, IDS[1:]):
        calling(lambda: store.write_order("p", 2, ids), kept, "write_order")
    store.write_index("p", 2)
    calling(lambda: store.load_predictions("p").ids, kept, "in order")
    np.save("p/order.npy", np.zeros(N, int))
    store.write_index("p", 2)
    calling(lambda: store.load_predictions("p").ids, kept, "no order")
    keep(
        kept,
        "stored",
        [
            store.is_stored("p"),
            store.is_stored("p.npz"),
            store.is_stored("q.npz"),
            str(store.shard_folder("p.npz")),
        ],
    )
    calling(lambda: found.logits[0, [[1, 2]]], kept, "two axes")
    calling(
        lambda: type(found.logits).of(
            type(found.logits).of(found.logits, np.arange(N)[::-1]), np.array([0, 5])
        )[0],
        kept,
        "order of order",
    )
    for name, parts in {
        "signed": (np.array([2**53 + 1], np.uint64), np.array([2**53])),
        "large": (np.array([2**63 + 1], np.uint64), np.array([5])),
        "both": (np.array([2**63 + 1], np.uint64), np.array([-5])),
        "empty": (np.array(["a", "bb"]), np.empty(0, int)),
        "kinds": (np.empty(0, int), np.array(["a"]), np.array([1])),
    }.items():
        calling(lambda: _of_ids(store, name, parts), kept, name)


def _of_ids(store, folder, parts):
    for shard, ids in enumerate(parts):
        with store.ShardWriter(
            folder, shard, len(parts), ids, np.zeros(len(ids), int), 1, 2
        ) as writer:
            writer.write(np.zeros((1, len(ids), 2)))
    return store.read_shards(store.write_index(folder, len(parts)).parent).ids


act("rare.ordered_shards", ordered, {"p": shards(OLD_RUNS)})


def blocks(kept):
    import churn_compare.documents as d

    wide = d.Table(
        ["name", d.Column("n", align="right")],
        [("a" * 50, "1"), ("b", d.Cell("22", tone="good"))],
        kind="aligned",
    )
    frame = d.Document(
        "t",
        blocks=[
            wide,
            d.Text("one line of a long text that goes on and on " * 4, "line"),
            d.Figure(),
            d.Figure(image=b"x", words="w"),
        ],
    )
    for show in (
        d.plain_text,
        d.markdown,
        lambda document: d.html_page(document).replace("><", ">\n<"),
    ):
        calling(lambda: show(frame), kept, "blocks")
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        d.print_document(frame)
    kept.add("printed", out.getvalue())


act("rare.blocks", blocks)


def verbose(kept):
    import contextlib
    import io
    import re

    from churn_compare.cli import main

    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        kept.add("code", main(["gone.csv", "gone.csv", "--verbose"]))
    lines = err.getvalue().splitlines()
    kept.add("said", "\n".join([lines[0], *lines[-2:]]))
    kept.add("no traceback lines", bool(re.search("Traceback", err.getvalue())))


act("rare.verbose", verbose)
cli(
    "rare.loop_of_links",
    "a.csv b.csv",
    {"a.csv": lambda path: path.symlink_to("a.csv"), "b.csv": "x\n"},
    bare=True,
)
cli("rare.equal_names", "o/p.csv n/p.csv", pair("o/p.csv", "n/p.csv"))
cli(
    "rare.equal_names_and_folders",
    "a/o/p.csv b/o/p.csv",
    pair("a/o/p.csv", "b/o/p.csv"),
)
refused("rare_output_folder", f"{BOTH} --json a.json/b.json", pair() | {"a.json": "x"})
cli(
    "rare.over_an_old_page",
    f"{BOTH} --json r2.json",
    pair() | {"r2.json": "{}"},
    also=("r2.json",),
    bare=True,
)
cli(
    "rare.empty_array",
    "a.npy b.npy",
    {"a.npy": np.zeros((0, 3)), "b.npy": OLD},
    bare=True,
)
LARGE = np.random.default_rng(4).normal(size=(1, 600_000, 30)).astype(np.float32)


def _large(path, change=None):
    """More than is read at once."""
    shifted = LARGE + np.float32(0.5 if change == "new" else 0) * LARGE[:, :, ::-1]
    np.savez(path, logits=shifted)
    if change == "damaged":
        content = np.memmap(path, np.uint8, "r+")
        content[40_000_000] ^= 255
        content.flush()


act("rare.large_archive", lambda kept: _of_large(kept), {})


def _of_large(kept):
    """One comparison of files that are mapped, and one of a damaged file."""
    from pathlib import Path

    _large(Path("old.npz"))
    _large(Path("new.npz"), "new")
    calling(lambda: compare("old.npz", "new.npz", resamples=100), kept, "mapped")
    _large(Path("new.npz"), "damaged")
    calling(lambda: compare("old.npz", "new.npz", resamples=100), kept, "damaged")

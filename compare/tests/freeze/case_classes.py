"""Predicted classes and their scores by the command."""

import gzip
import json
import os
import re

import numpy as np

from tests.freeze.inputs import (
    DEVICE,
    GROUPS,
    IDS,
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
    USER,
    C,
    N,
    logits_of,
    named,
    pair,
    scored,
    side,
    stacked,
)
from tests.freeze.registry import cli
from tests.freeze.session import delimited, records_of

BOTH = "old.csv new.csv"
NPZ = "old.npz new.npz"
SAVED = {"old.npz": OWN, "new.npz": OTHER}

cli("classes.plain", BOTH, pair(), pages=True)
cli("classes.plain_full", BOTH, pair())
cli("classes.plain_bare", BOTH, pair(), bare=True)
cli("classes.names", BOTH, pair(names=NAMES), pages=True)
cli("classes.no_labels", BOTH, pair(labels=None), pages=True)
cli("classes.no_labels_names", BOTH, pair(labels=None, names=NAMES))
cli("classes.level", f"{BOTH} --level 0.9", pair())
cli("classes.probabilities", BOTH, scored("old.csv", "new.csv"), pages=True)
cli("classes.probabilities_names", BOTH, scored("old.csv", "new.csv", names=NAMES))
cli(
    "classes.probabilities_no_labels",
    BOTH,
    scored("old.csv", "new.csv", labels=None),
    pages=True,
)
cli("classes.logits", BOTH, scored("old.csv", "new.csv", "logit_"))
cli(
    "classes.logits_no_labels",
    BOTH,
    scored("old.csv", "new.csv", "logit_", labels=None),
)
cli(
    "classes.logits_and_classes",
    BOTH,
    {
        "old.csv": side(OLD),
        "new.csv": side(classes=NEW_CLASS, order=ORDER),
    },
)
cli(
    "classes.classes_and_probabilities",
    BOTH,
    {
        "old.csv": side(classes=OLD_CLASS),
        "new.csv": side(NEW_PROBS, "prob_", order=ORDER),
    },
    pages=True,
)
cli(
    "classes.decisions",
    BOTH,
    {
        "old.csv": side(OLD_PROBS, "prob_", classes=(OLD + [0, 0.8, 0, 0]).argmax(1)),
        "new.csv": side(
            NEW_PROBS, "prob_", classes=(NEW + [0, 0.9, 0, 0]).argmax(1), order=ORDER
        ),
    },
    pages=True,
)
DECIDED = {
    "old.csv": side(OLD_PROBS, "prob_", classes=OLD_CLASS),
    "new.csv": side(NEW_PROBS, "prob_", classes=NEW_CLASS, order=ORDER),
}
for kind in ("classes", "probabilities"):
    cli(f"classes.decisions_kind_{kind}", f"{BOTH} --kind {kind}", DECIDED)

# Forms of files

for ending in ("tsv", "csv.gz", "jsonl", "jsonl.gz", "ndjson", "json", "json.gz"):
    files = scored(f"old.{ending}", f"new.{ending}", "logit_")
    if "json" in ending:
        files = {n: records_of(of) for n, of in files.items()}
    cli(f"form.{ending}", f"old.{ending} new.{ending}", files)
for ending in ("parquet", "feather", "arrow"):
    cli(
        f"form.{ending}",
        f"old.{ending} new.{ending}",
        scored(f"old.{ending}", f"new.{ending}"),
    )
cli("form.mixed", "old.csv new.parquet", scored("old.csv", "new.parquet"))
cli("form.npz", NPZ, SAVED)
cli(
    "form.npz_names",
    NPZ,
    {
        "old.npz": OWN | {"class_names": np.array(NAMES)},
        "new.npz": OTHER | {"class_names": np.array(NAMES)},
    },
)
cli(
    "form.npz_bytes_names",
    NPZ,
    {
        "old.npz": OWN | {"class_names": np.array(NAMES, "S")},
        "new.npz": OTHER | {"class_names": np.array(NAMES)},
    },
)
cli(
    "form.npz_compressed",
    NPZ,
    {
        "old.npz": lambda p: np.savez_compressed(p, **OWN),
        "new.npz": lambda p: np.savez_compressed(p, **OTHER),
    },
)
cli(
    "form.npz_probs",
    NPZ,
    {
        "old.npz": {"id": IDS, "y_true": LABELS, "probs": OLD_PROBS},
        "new.npz": {"id": IDS, "y_true": LABELS, "probs": NEW_PROBS},
    },
)
cli(
    "form.npz_predictions",
    NPZ,
    {
        "old.npz": {"ids": IDS, "targets": LABELS, "predictions": OLD},
        "new.npz": {"ids": IDS, "targets": LABELS, "predictions": NEW_CLASS},
    },
)
cli(
    "form.npz_decisions",
    NPZ,
    {
        "old.npz": OWN | {"preds": OLD_CLASS},
        "new.npz": OTHER | {"preds": NEW_CLASS},
    },
)
cli(
    "form.npz_runs",
    NPZ,
    {
        "old.npz": OWN | {"logits": OLD_RUNS},
        "new.npz": OTHER | {"logits": NEW_RUNS},
    },
    pages=True,
)
cli(
    "form.npz_stopped",
    NPZ,
    {
        "old.npz": OWN
        | {"logits": OLD_RUNS, "meta": json.dumps({"stopped": [{"replica": 1}]})},
        "new.npz": OTHER | {"logits": NEW_RUNS, "meta": json.dumps({"stopped": [0]})},
    },
)
for kind in ("float16", "float64", ">f4"):
    cli(
        f"form.npy_{kind.strip('>')}",
        "old.npy new.npy --labels labels.npy",
        {
            "old.npy": OLD.astype(kind),
            "new.npy": NEW.astype(kind),
            "labels.npy": LABELS,
        },
    )


def _bf16(values):
    def write(path):
        import ml_dtypes

        np.save(path, values.astype(ml_dtypes.bfloat16))

    return write


cli(
    "form.npy_bfloat16",
    "old.npy new.npy --labels labels.npy",
    {
        "old.npy": _bf16(OLD),
        "new.npy": _bf16(NEW),
        "labels.npy": LABELS,
    },
)
cli(
    "form.npy_fortran",
    "old.npy new.npy --labels labels.npy",
    {
        "old.npy": np.asfortranarray(OLD),
        "new.npy": np.asfortranarray(NEW),
        "labels.npy": LABELS,
    },
)
cli(
    "form.npy_runs",
    "old.npy new.npy --labels labels.npy",
    {
        "old.npy": OLD_RUNS,
        "new.npy": NEW_RUNS,
        "labels.npy": LABELS,
    },
)
cli("form.npy_classes", "old.npy new.npy", {"old.npy": OLD_CLASS, "new.npy": NEW_CLASS})
cli(
    "form.npy_class_runs",
    "old.npy new.npy",
    {
        "old.npy": OLD_RUNS.argmax(-1),
        "new.npy": NEW_RUNS.argmax(-1),
    },
)
cli(
    "form.npy_structured",
    "old.npy new.npy",
    {
        name: np.array(
            [*zip(IDS, LABELS, of)],
            [("id", int), ("target", int), ("logits", float, C)],
        )
        for name, of in (("old.npy", OLD), ("new.npy", NEW))
    },
)
cli(
    "form.json_list",
    "old.json new.json",
    {
        "old.json": OLD_CLASS.tolist(),
        "new.json": NEW_CLASS.tolist(),
    },
)
cli(
    "form.json_list_of_scores",
    "old.json new.json",
    {
        "old.json": OLD.tolist(),
        "new.json": NEW.tolist(),
    },
)
RECORDS = [records_of(side(of, "logit_")) for of in (OLD, NEW)]
FORMS_OF_JSON = {
    "lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "columns": lambda rows: json.dumps({n: [r[n] for r in rows] for n in rows[0]}),
    "pandas_columns": lambda rows: json.dumps(
        {n: {str(i): r[n] for i, r in enumerate(rows)} for n in rows[0]}
    ),
    "split": lambda rows: json.dumps(
        {
            "columns": [*rows[0]],
            "index": [*range(N)],
            "data": [[*r.values()] for r in rows],
        }
    ),
    "table": lambda rows: json.dumps({"schema": {"fields": []}, "data": rows}),
    "rows": lambda rows: json.dumps(
        {"columns": [*rows[0]], "rows": [[*r.values()] for r in rows]}
    ),
    "indented": lambda rows: json.dumps(rows, indent=1),
}
for name, text in FORMS_OF_JSON.items():
    cli(
        f"form.json_{name}",
        "old.json new.json",
        {
            "old.json": text(RECORDS[0]),
            "new.json": text(RECORDS[1]),
        },
    )
cli(
    "form.jsonl_array",
    "old.jsonl new.jsonl",
    {
        "old.jsonl": json.dumps(RECORDS[0]),
        "new.jsonl": json.dumps(RECORDS[1], indent=1),
    },
)
cli(
    "form.jsonl_objects",
    "old.jsonl new.jsonl",
    {
        "old.jsonl": "\n".join(map(json.dumps, RECORDS[0])).replace(", ", ",\n"),
        "new.jsonl": "\n\n".join(map(json.dumps, RECORDS[1])).encode("utf-16"),
    },
)
cli(
    "form.jsonl_lists",
    "old.jsonl new.jsonl",
    {
        "old.jsonl": records_of({"id": IDS, "target": LABELS, "logits": OLD.tolist()}),
        "new.jsonl": records_of({"id": IDS, "target": LABELS, "logits": NEW.tolist()}),
    },
)
cli(
    "form.parquet_lists",
    "old.parquet new.parquet",
    {
        "old.parquet": {"id": IDS, "target": LABELS, "probs": OLD_PROBS},
        "new.parquet": {"id": IDS, "target": LABELS, "probs": NEW_PROBS},
    },
)
cli(
    "form.parquet_float_kinds",
    "old.parquet new.parquet",
    {
        "old.parquet": side(OLD.astype(np.float32)),
        "new.parquet": side(NEW.astype(np.float16)),
    },
)
TEXT = {"old": delimited(side(OLD), ","), "new": delimited(side(NEW, order=ORDER), ",")}
FORMS_OF_TEXT = {
    "semicolons": lambda t: t.replace(",", ";"),
    "decimal_commas": lambda t: t.replace(",", ";").replace(".", ","),
    "excel": lambda t: ("sep=;\n" + t.replace(",", ";").replace(".", ",")).encode(
        "utf-8-sig"
    ),
    "utf16_tabs": lambda t: t.replace(",", "\t").replace(".", ",").encode("utf-16"),
    "bars": lambda t: t.replace(",", "|"),
    "savetxt": lambda t: "# " + t,
    "comments": lambda t: "# v1\n#\n# a, b\n" + t,
    "crlf": lambda t: t.replace("\n", "\r\n"),
    "single_quotes": lambda t: re.sub(r"[^,\n]+", r"'\g<0>'", t),
    "double_quotes": lambda t: re.sub(r"[^,\n]+", r'"\g<0>"', t),
    "packed": lambda t: gzip.compress(t.encode()),
    "no_last_end": lambda t: t.rstrip("\n"),
    "spaces_in_names": lambda t: t.replace("label", " Label ", 1),
    "index": lambda t: "".join(
        f"{'' if i == 0 else i - 1},{line}\n" for i, line in enumerate(t.splitlines())
    ),
}
for name, change in FORMS_OF_TEXT.items():
    cli(
        f"form.text_{name}",
        BOTH,
        {
            "old.csv": change(TEXT["old"]),
            "new.csv": change(TEXT["new"]),
        },
    )
cli(
    "form.text_newlines",
    BOTH,
    {
        f"{n}.csv": "id,label,prediction,note\n"
        + "".join(f'{i},{y},{p},"two\nlines"\n' for i, y, p in zip(IDS, LABELS, of))
        for n, of in (("old", OLD_CLASS), ("new", NEW_CLASS))
    },
)


def parts(values, ending, keys=("", ""), mark=True):
    """A folder as Spark writes it."""
    from tests.freeze.session import write

    def make(path):
        path.mkdir()
        if mark:
            (path / "_SUCCESS").touch()
        for number, (rows, key) in enumerate(
            zip((slice(0, 90), slice(90, None)), keys)
        ):
            part = path / key / f"part-{number:05d}-c000{ending}"
            write(part, {name: of[rows] for name, of in values.items()})
            part.with_name(f".{part.name}.crc").write_bytes(b"crc")
        (path / f"part-00002-c000{ending}").touch()

    return make


for ending in (".snappy.parquet", ".csv", ".csv.gz", ".jsonl"):
    cli(
        f"form.parts{ending}",
        "old new",
        {
            "old": parts(side(OLD), ending),
            "new": parts(side(NEW), ending),
        },
    )
cli(
    "form.parts_json",
    "old new",
    {
        name: parts_json
        for name, parts_json in (
            ("old", lambda p: _json_parts(p, OLD)),
            ("new", lambda p: _json_parts(p, NEW)),
        )
    },
)
cli(
    "form.parts_keys",
    "old.parquet new.parquet --by day",
    {
        "old.parquet": parts(side(OLD), ".parquet", ("day=1", "day=2")),
        "new.parquet": parts(side(NEW), ".parquet", ("day=1", "day=2")),
    },
)
cli(
    "form.parts_hugging_face",
    "old new",
    {
        name: lambda p, of=of: _hf_parts(p, of)
        for name, of in (("old", OLD), ("new", NEW))
    },
)


def _json_parts(path, of):
    rows = records_of(side(of))
    path.mkdir()
    (path / "_SUCCESS").touch()
    for number in (0, 1):
        text = "\n".join(map(json.dumps, rows[number * 60 : number * 60 + 60]))
        (path / f"part-0000{number}.json").write_text(text)


def _hf_parts(path, of):
    import pyarrow as pa
    from pyarrow import parquet

    path.mkdir()
    (path / "dataset_info.json").write_text("{}")
    features = {"label": {"names": [*NAMES], "_type": "ClassLabel"}}
    meta = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table(side(of)).replace_schema_metadata(meta)
    for number in (0, 1):
        part = table.slice(number * 60, 60)
        parquet.write_table(part, path / f"train-0000{number}-of-00002.parquet")


def labelled(values, **names):
    """A Parquet file of which Hugging Face knows the names of classes."""

    def write(path):
        import pyarrow as pa
        from pyarrow import parquet

        features = {
            n: {"names": [*of], "_type": "ClassLabel"} for n, of in names.items()
        }
        meta = {"huggingface": json.dumps({"info": {"features": features}})}
        parquet.write_table(pa.table(values).replace_schema_metadata(meta), path)

    return write


cli(
    "form.class_labels",
    "old.parquet new.parquet",
    {
        "old.parquet": labelled(side(classes=OLD_CLASS), label=NAMES, prediction=NAMES),
        "new.parquet": labelled(side(classes=NEW_CLASS), label=NAMES, prediction=NAMES),
    },
)
cli(
    "form.class_labels_other_order",
    "old.parquet new.parquet",
    {
        "old.parquet": labelled(side(classes=OLD_CLASS), label=NAMES),
        "new.parquet": labelled(
            side(classes=3 - NEW_CLASS, labels=3 - LABELS),
            label=NAMES[::-1],
            prediction=NAMES[::-1],
        ),
    },
)
cli(
    "form.class_labels_of_texts",
    "old.parquet new.parquet",
    {
        name: labelled(side(classes=named(of)), label=NAMES)
        for name, of in (("old.parquet", OLD_CLASS), ("new.parquet", NEW_CLASS))
    },
)
cli(
    "form.pandas_index",
    "old.parquet new.parquet",
    {
        name: lambda path, of=of: _pandas(path, of)
        for name, of in (("old.parquet", OLD), ("new.parquet", NEW))
    },
)
cli(
    "form.pandas_range",
    "old.parquet new.parquet",
    {
        name: lambda path, of=of: _pandas(
            path, of, {"kind": "range", "start": 0, "stop": N, "step": 1}
        )
        for name, of in (("old.parquet", OLD), ("new.parquet", NEW))
    },
)


def _pandas(path, of, index="__index_level_0__"):
    import pyarrow as pa
    from pyarrow import parquet

    columns = side(of, ids=None)
    if isinstance(index, str):
        columns[index] = IDS
    meta = {"pandas": json.dumps({"index_columns": [index]})}
    parquet.write_table(pa.table(columns).replace_schema_metadata(meta), path)


def spark_vectors(of, dense):
    rows = [
        {"type": 1, "size": None, "indices": None, "values": row.tolist()}
        if dense
        else {"type": 0, "size": C, "indices": [0], "values": [1.0]}
        for row in of
    ]
    return {
        "id": IDS,
        "label": LABELS,
        "prediction": of.argmax(1).astype(float),
        "probability": rows,
    }


for dense in (True, False):
    cli(
        f"form.spark_vectors_{'dense' if dense else 'sparse'}",
        "old.parquet new.parquet",
        {
            "old.parquet": spark_vectors(OLD_PROBS, dense),
            "new.parquet": spark_vectors(NEW_PROBS, dense),
        },
    )
cli(
    "form.printed_lists",
    BOTH,
    {
        name: "id;label;probs\n"
        + "".join(
            f"{i};{y};[{' '.join(f'{x:.4f}' for x in row)}]\n"
            for i, y, row in zip(IDS, LABELS, of)
        )
        for name, of in (("old.csv", OLD_PROBS), ("new.csv", NEW_PROBS))
    },
)
cli(
    "form.dictionaries",
    "old.parquet new.parquet",
    {
        name: lambda path, of=of: _dictionaries(path, of)
        for name, of in (("old.parquet", OLD_CLASS), ("new.parquet", NEW_CLASS))
    },
)


def _dictionaries(path, of):
    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        "id": [f"e{i}" for i in IDS],
        "label": named(LABELS),
        "prediction": named(of),
    }
    table = pa.table({n: pa.array(v).dictionary_encode() for n, v in columns.items()})
    parquet.write_table(table, path)


# Which column is what

P, Y, THREE = [0, 1, 1, 0], [0, 1, 0, 0], ["a", "b", "a", "b"]
HALF, SURE, ADJ = [0.5, 0.5, 0.5, 0.5], [0.9, 0.8, 0.7, 0.6], [0.96] * 4
STACKED, SEEDS, IDS_4, UNSURE = (
    [0, 0, 1, 1],
    [1, 2, 1, 2],
    [7, 8, 9, 6],
    ["0", "?", "1", "?"],
)
VALUES = {
    n: of
    for n, of in vars().items()
    if n in ("P Y THREE HALF SURE ADJ STACKED SEEDS IDS_4 UNSURE".split())
}
ROLES = """
class=Y pred=P
label=Y class=P
Y~Hat=P ~y~=Y
output=P gold=Y
predict=P p0=HALF
x=Y Pred~x=P
true_x=Y x_pred=P
x=Y x_pred=P y_pred=P --prediction-column x_pred
target=P --prediction-column target
pred=P yhat=Y --prediction-column yhat
prediction=P prob_0=HALF prob_1=HALF
prediction=P prob_0=HALF prob_1=HALF --kind classes
prediction=P prob_0=HALF prob_1=HALF --kind probabilities
class=P prob_0=HALF prob_1=HALF --prediction-column class
class=Y prob_0=HALF prob_1=HALF --label-column class
prediction=P p_value=ADJ p_adj=SURE
prediction=P p_5=SURE p_name=THREE
prediction=THREE p_a=HALF p_b=HALF
prediction=P probability=SURE
prediction=P prob_1=SURE
label=THREE score=SURE
y_true=Y y_pred=P y_prob=SURE --kind probabilities --prediction-column y_pred
label=THREE class=THREE score=SURE
class=THREE score=SURE
label=Y score=SURE --kind probabilities --prediction-column score
label=Y score=SURE --prediction-column label
label=Y score=SURE --score-column score
a=HALF b=SURE --kind logits
pred=P output=P
label=Y class=Y pred=P
class=P prob_0=HALF prob_1=HALF
id=P example_id=P pred=P
label=Y score=SURE
y_true=Y score=SURE
Class=Y score=SURE
id=IDS_4 reward=Y
prediction=SURE prob_0=HALF prob_1=HALF
prediction=UNSURE prob_0=HALF prob_1=HALF
a=Y a_pred=P b=Y b_pred=P
id=P p_a=SURE p_b=SURE
id=STACKED seed=SEEDS pred=P
id=IDS_4 seed=SEEDS pred=P
id=IDS_4 run=SEEDS pred=P
run=SEEDS pred=P
id=STACKED run=SEEDS label=Y pred=P
id=STACKED run=SEEDS label=SEEDS pred=P
id=IDS_4 pred=P --id-column nothing
id=IDS_4 pred=P --label-column nothing
id=IDS_4 pred=P --prediction-column nothing
id=IDS_4 pred=P --prediction-column pred --label-column pred
logits=HALF probs=SURE
logit_0=HALF logits_1=HALF
prob_0=HALF prob_2=HALF
prob_0=HALF prob_=HALF
prob_a=HALF prob_a~=HALF
logit_norm=HALF logit_0=SURE logit_1=SURE
probs=HALF
probs=HALF --kind probabilities
prediction=HALF
prediction=HALF --kind probabilities
x=HALF y=SURE
""".strip().splitlines()
for number, line in enumerate(ROLES):
    parts_of = line.partition(" --")
    columns = {
        name.replace("~", " "): VALUES[of]
        for name, _, of in (part.partition("=") for part in parts_of[0].split())
    }
    new = {
        n: [0, 0, 1, 1] if of is P and n != "id" else of for n, of in columns.items()
    }
    options = "".join(parts_of[1:])
    for ending in ("csv", "parquet") if number % 3 == 0 else ("csv",):
        cli(
            f"roles.{number:02d}_{ending}",
            f"old.{ending} new.{ending}{options}",
            {
                f"old.{ending}": columns,
                f"new.{ending}": new,
            },
            bare=True,
        )

# Options about data

LATER = {
    "old.csv": side(classes=OLD_CLASS, labels=None),
    "new.csv": side(classes=NEW_CLASS, labels=None),
}
cli(
    "labels.file",
    f"{BOTH} --labels y.csv",
    LATER | {"y.csv": {"id": IDS[::-1], "label": LABELS[::-1]}},
)
cli(
    "labels.parquet",
    f"{BOTH} --labels y.parquet",
    LATER | {"y.parquet": {"id": IDS, "target": LABELS}},
)
cli(
    "labels.column",
    f"{BOTH} --labels y.csv --label-column z",
    LATER
    | {
        "y.csv": {"id": IDS, "z": LABELS, "label": LABELS[::-1]},
    },
)
cli(
    "labels.order",
    f"{BOTH} --labels y.npy",
    {
        "old.csv": side(classes=OLD_CLASS, labels=None, ids=None),
        "new.csv": side(classes=NEW_CLASS, labels=None, ids=None),
        "y.npy": LABELS,
    },
)
cli(
    "labels.one_side",
    BOTH,
    {
        "old.csv": side(classes=OLD_CLASS),
        "new.csv": side(classes=NEW_CLASS, labels=None),
    },
)
cli(
    "labels.names",
    f"{BOTH} --labels y.csv",
    {
        "old.csv": side(classes=named(OLD_CLASS), labels=None),
        "new.csv": side(classes=named(NEW_CLASS), labels=None),
        "y.csv": {"id": IDS, "label": named(LABELS)},
    },
)
cli(
    "labels.of_predictions",
    f"{BOTH} --labels third.npz",
    {
        "old.csv": side(classes=named(OLD_CLASS), labels=None),
        "new.csv": side(classes=named(NEW_CLASS), labels=None),
        "third.npz": OWN | {"class_names": np.array(NAMES)},
    },
)
cli(
    "labels.more",
    f"{BOTH} --labels y.csv",
    LATER
    | {
        "y.csv": {"id": [*IDS, 9001, 9002], "label": [*LABELS, 0, 1]},
    },
)
cli(
    "labels.fewer",
    f"{BOTH} --labels y.csv --on-missing intersect",
    LATER
    | {
        "y.csv": {"id": IDS[:100], "label": LABELS[:100]},
    },
)
cli(
    "labels.of_a_new_class",
    f"{BOTH} --labels y.csv",
    LATER
    | {
        "y.csv": {"id": IDS, "label": np.where(np.arange(N) < 9, 7, LABELS)},
    },
)
cli("slices.file", f"{BOTH} --slices g.csv", pair() | {"g.csv": GROUPS}, pages=True)
cli(
    "slices.fewer",
    f"{BOTH} --slices g.csv --on-missing intersect",
    pair()
    | {
        "g.csv": {n: of[:90] for n, of in GROUPS.items()},
    },
)
cli("slices.predictions", f"{BOTH} --slices old.csv --confirm same-file", pair())
cli(
    "slices.order",
    "old.npy new.npy --slices g.csv --labels y.npy",
    {
        "old.npy": OLD,
        "new.npy": NEW,
        "y.npy": LABELS,
        "g.csv": {"region": REGION, "device": DEVICE},
    },
)
cli("slices.by", f"{BOTH} --by region device", pair())
cli("slices.by_pages", f"{BOTH} --by region --max-slice-nfr 20%", pair(), pages=True)
cli("slices.by_no_labels", f"{BOTH} --by region", pair(labels=None), pages=True)
cli(
    "slices.scores",
    f"{BOTH} --slices g.csv",
    scored("old.csv", "new.csv") | {"g.csv": GROUPS},
)
cli(
    "slices.numbers",
    f"{BOTH} --by size half --max-slice-nfr 5%",
    pair(
        size=np.arange(N) % 3,
        half=(np.arange(N) % 2) / 2,
    ),
)
cli("clusters.column", f"{BOTH} --cluster user", pair(), pages=True)
cli("clusters.by", f"{BOTH} --cluster user --by region", pair())
cli(
    "clusters.scores", f"{BOTH} --cluster user", scored("old.csv", "new.csv", user=USER)
)
cli(
    "clusters.of_slices",
    f"{BOTH} --cluster user --slices g.csv",
    pair()
    | {
        "g.csv": GROUPS | {"user": USER // 2},
    },
)
cli(
    "clusters.gaps",
    f"{BOTH} --cluster user",
    pair(user=np.where(USER < 4, "", USER.astype(str))),
)
cli("clusters.no_labels", f"{BOTH} --cluster user", pair(labels=None))
cli("clusters.few", f"{BOTH} --cluster device", pair())
cli(
    "clusters.runs",
    "old.jsonl new.jsonl --cluster user",
    {
        "old.jsonl": stacked(OLD_RUNS, user=USER),
        "new.jsonl": stacked(NEW_RUNS, 3, user=USER),
    },
)
cli("pool.column", f"{BOTH} --by region --pool region", pair(), pages=True)
cli(
    "pool.scores",
    f"{BOTH} --slices g.csv --pool device",
    scored("old.csv", "new.csv") | {"g.csv": GROUPS},
)
cli("pool.clusters", f"{BOTH} --by region --pool region --cluster user", pair())
cli("equivalent.shown", f"{BOTH} --equivalent 40%", pair(), pages=True)
cli("equivalent.not_shown", f"{BOTH} --equivalent 0.01", pair())
cli("equivalent.clusters", f"{BOTH} --equivalent 20% --cluster user", pair())
cli(
    "runs.column",
    "old.csv new.csv",
    {
        "old.csv": stacked(OLD_RUNS),
        "new.csv": stacked(NEW_RUNS, 3),
    },
)
cli(
    "runs.full",
    "old.csv new.csv --max-excess-churn 10%",
    {
        "old.csv": stacked(OLD_RUNS),
        "new.csv": stacked(NEW_RUNS, 3),
    },
)
cli(
    "runs.one_old",
    "old.csv new.csv",
    {"old.csv": side(OLD), "new.csv": stacked(NEW_RUNS, 3)},
)
cli(
    "runs.one_new",
    "old.csv new.csv",
    {"old.csv": stacked(OLD_RUNS), "new.csv": side(NEW)},
)
FOUR = np.stack([logits_of(r) for r in (0, 1, 2, 3)])
cli(
    "runs.four",
    "old.npz new.npz",
    {
        "old.npz": OWN | {"logits": FOUR},
        "new.npz": OTHER | {"logits": 1.3 * FOUR + 0.4 * NEW},
    },
    pages=True,
)
cli(
    "runs.paired",
    "old.npz new.npz --max-nfr 1%",
    {
        "old.npz": OWN | {"logits": FOUR},
        "new.npz": OTHER | {"logits": FOUR + 0.25 * NEW[::-1]},
    },
    pages=True,
)
cli(
    "runs.two",
    "old.npz new.npz",
    {
        "old.npz": OWN | {"logits": FOUR[:2]},
        "new.npz": OTHER | {"logits": NEW_RUNS[:2]},
    },
)
cli(
    "runs.classes",
    "old.npz new.npz",
    {
        "old.npz": {"ids": IDS, "labels": LABELS, "predictions": FOUR.argmax(-1)},
        "new.npz": {"ids": IDS, "labels": LABELS, "predictions": NEW_RUNS.argmax(-1)},
    },
)
cli(
    "runs.equal",
    "old.npz new.npz",
    {
        "old.npz": OWN | {"logits": FOUR[[0, 0, 0]]},
        "new.npz": OTHER | {"logits": FOUR[[0, 0, 0]]},
    },
)
cli(
    "runs.no_labels",
    "old.npz new.npz",
    {
        "old.npz": {"ids": IDS, "logits": FOUR},
        "new.npz": {"ids": IDS, "logits": NEW_RUNS},
    },
)
cli(
    "runs.outlier",
    "old.npz new.npz",
    {
        "old.npz": OWN | {"logits": FOUR},
        "new.npz": OTHER | {"logits": np.stack([FOUR[1], FOUR[2], FOUR[0][::-1]])},
    },
)
SEEDED = {n: of for n, of in stacked(OLD_RUNS).items() if n != "run"}
cli(
    "runs.seed",
    "old.csv new.csv",
    {
        "old.csv": SEEDED | {"seed": stacked(OLD_RUNS)["run"]},
        "new.csv": SEEDED
        | {"seed": stacked(OLD_RUNS)["run"]}
        | {"logit_0": stacked(NEW_RUNS)["logit_0"]},
    },
)
cli(
    "runs.named",
    "old.csv new.csv",
    {
        name: stacked(of) | {"run": np.repeat(["a", "b", "c"], N)}
        for name, of in (("old.csv", OLD_RUNS), ("new.csv", NEW_RUNS))
    },
)

# Ids and classes that do not fit at once

FEWER = {
    "old.csv": side(classes=OLD_CLASS, order=np.arange(100)),
    "new.csv": side(classes=NEW_CLASS, order=ORDER[20:]),
}
cli("ids.intersect", f"{BOTH} --on-missing intersect", FEWER)
cli("ids.texts", BOTH, pair(ids=np.array([f"e{i}" for i in IDS])))
cli("ids.zeros", BOTH, pair(ids=np.array([f"{i:05d}" for i in IDS])))
cli(
    "ids.padded_strip",
    f"{BOTH} --strip",
    {
        "old.csv": side(
            classes=named(OLD_CLASS),
            labels=named(LABELS),
            ids=np.array([f"e{i} " for i in IDS]),
        ),
        "new.csv": side(
            classes=np.char.add(named(NEW_CLASS), " "),
            labels=named(LABELS),
            ids=np.array([f" e{i}" for i in IDS]),
        ),
    },
)
NO_IDS = {
    "old.csv": side(classes=OLD_CLASS, ids=None),
    "new.csv": side(classes=NEW_CLASS, ids=None),
}
cli("ids.none", BOTH, NO_IDS)
MOVED = {
    "old.csv": side(classes=OLD_CLASS, ids=None, text=np.array([f"t{i}" for i in IDS])),
    "new.csv": side(
        classes=NEW_CLASS, ids=None, order=ORDER, text=np.array([f"t{i}" for i in IDS])
    ),
}
cli("ids.none_other_order", BOTH, MOVED)
cli("ids.none_confirmed", f"{BOTH} --confirm row-order", MOVED)
cli("ids.none_but_named", f"{BOTH} --id-column text", MOVED)
cli("ids.large", BOTH, pair(ids=np.uint64(2**63) + IDS.astype(np.uint64)))
cli(
    "ids.other_kind",
    BOTH,
    {
        "old.csv": side(classes=OLD_CLASS),
        "new.csv": side(classes=NEW_CLASS, ids=np.array([f"0{i}" for i in IDS])),
    },
)
TWO_LEVELS = {"a": np.arange(N) // 12, "b": np.arange(N) % 12}
cli(
    "ids.two_columns",
    BOTH,
    {
        "old.csv": side(classes=OLD_CLASS, ids=None, **TWO_LEVELS),
        "new.csv": side(classes=NEW_CLASS, ids=None, order=ORDER, **TWO_LEVELS),
    },
)
HOUND = [{"cat": "cat", "cow": "cow", "dog": "hound", "emu": "emu"}[n] for n in NAMES]
RENAMED = {
    "old.csv": side(classes=named(OLD_CLASS), labels=named(LABELS)),
    "new.csv": side(classes=named(NEW_CLASS, HOUND), labels=named(LABELS, HOUND)),
}
MAP = "old,new\ncat,cat\ncow,cow\ndog,hound\nemu,emu\n"
cli("map.csv", f"{BOTH} --class-map m.csv", RENAMED | {"m.csv": MAP})
cli("map.json", f"{BOTH} --class-map m.json", RENAMED | {"m.json": '{"dog": "hound"}'})
cli("map.none", BOTH, RENAMED)
for name, words, mapped in (
    ("identity", "identity", None),
    ("numbers", "m.csv", "old,new\n0,cat\n1,cow\n2,dog\n3,emu\n"),
    ("some_numbers", "m.csv", "old,new\n0,emu\n3,cat\n"),
):
    cli(
        f"map.names_and_numbers_{name}",
        f"{NPZ} --class-map {words}",
        {
            "old.npz": {"ids": IDS, "logits": OLD},
            "new.npz": OTHER | {"class_names": np.array(NAMES)},
        }
        | ({} if mapped is None else {"m.csv": mapped}),
    )
cli(
    "map.more_classes",
    f"{NPZ} --class-map identity",
    {
        "old.npz": {"ids": IDS, "labels": LABELS, "logits": OLD[:, :3]},
        "new.npz": OTHER,
    },
)
cli(
    "map.fewer_classes",
    f"{NPZ} --class-map m.json",
    {
        "old.npz": {"ids": IDS, "logits": OLD},
        "new.npz": {"ids": IDS, "labels": np.minimum(LABELS, 2), "logits": NEW[:, :3]},
        "m.json": '{"0": 1, "1": 0, "2": 2}',
    },
)
cli(
    "map.order_of_classes",
    NPZ,
    {
        "old.npz": OWN | {"class_names": np.array(NAMES)},
        "new.npz": {
            "ids": IDS,
            "labels": 3 - LABELS,
            "logits": NEW[:, ::-1],
            "class_names": np.array(NAMES[::-1]),
        },
    },
)
THREE_PROBS = NEW_PROBS[:, :3] / NEW_PROBS[:, :3].sum(1, keepdims=True)
cli(
    "map.names_of_one_side",
    BOTH,
    {
        "old.csv": side(OLD_PROBS, "prob_", names=NAMES),
        "new.csv": side(THREE_PROBS, "prob_", labels=None, names=NAMES[:3])
        | {"label": named(LABELS)},
    },
)
cli(
    "map.scores_and_names",
    BOTH,
    {
        "old.csv": side(classes=named(OLD_CLASS), labels=named(LABELS)),
        "new.csv": side(NEW_PROBS, "prob_", names=NAMES, order=ORDER),
    },
)
cli(
    "map.truths",
    BOTH,
    {
        "old.csv": side(classes=OLD_CLASS > 1, labels=LABELS > 1),
        "new.csv": side(
            classes=(NEW_CLASS > 1).astype(int), labels=(LABELS > 1).astype(int)
        ),
    },
)
cli(
    "map.svm",
    BOTH,
    {
        "old.csv": side(classes=2 * (OLD_CLASS > 1) - 1, labels=2 * (LABELS > 1) - 1),
        "new.csv": side(classes=2 * (NEW_CLASS > 1) - 1, labels=2 * (LABELS > 1) - 1),
    },
)
cli(
    "map.label_numbers",
    BOTH,
    {
        "old.csv": side(classes=np.array([f"LABEL_{c}" for c in OLD_CLASS])),
        "new.csv": side(classes=NEW_CLASS.astype(float)),
    },
)
ALIKE = {
    "old.csv": side(classes=named(OLD_CLASS), labels=named(LABELS)),
    "new.csv": side(
        classes=named(NEW_CLASS, [n.title() for n in NAMES]), labels=named(LABELS)
    ),
}
cli("map.capitals", BOTH, ALIKE)
cli("map.capitals_confirmed", f"{BOTH} --confirm similar-classes", ALIKE)
for number, other in enumerate(
    ("cat ", "\ufeffcat", "c at", "ｃat", "c\u200bat", "c_at")
):
    cli(
        f"map.alike_{number}",
        "old.jsonl new.jsonl",
        {
            "old.jsonl": side(classes=named(OLD_CLASS), labels=named(LABELS)),
            "new.jsonl": side(
                classes=named(NEW_CLASS, [other, *NAMES[1:]]), labels=named(LABELS)
            ),
        },
        bare=True,
    )
cli(
    "map.numbers_as_names",
    NPZ,
    {
        "old.npz": OWN
        | {
            "class_names": np.array(["3", "7", "1", "5"]),
            "labels": np.array([3, 7, 1, 5])[LABELS],
        },
        "new.npz": OTHER
        | {
            "class_names": np.array(["1", "3", "7", "5"]),
            "labels": np.array([3, 7, 1, 5])[LABELS],
        },
    },
)

# Scores that are special

cli(
    "scores.ties",
    NPZ,
    {
        "old.npz": OWN | {"logits": np.where(np.arange(N)[:, None] < 20, 0.0, OLD)},
        "new.npz": OTHER,
    },
)
cli(
    "scores.infinite",
    NPZ,
    {
        "old.npz": OWN | {"logits": np.where(OLD < -1.5, -np.inf, OLD)},
        "new.npz": OTHER,
    },
)
cli(
    "scores.large",
    NPZ,
    {"old.npz": OWN | {"logits": 400 * OLD}, "new.npz": OTHER | {"logits": 400 * NEW}},
)
cli(
    "scores.shifted", NPZ, {"old.npz": OWN | {"logits": OLD - 3000.0}, "new.npz": OTHER}
)
cli("scores.equal", NPZ, {"old.npz": OWN, "new.npz": OWN})
cli(
    "scores.kinds_differ",
    NPZ,
    {"old.npz": OWN, "new.npz": {"ids": IDS, "labels": LABELS, "probs": NEW_PROBS}},
)
cli(
    "scores.binary",
    f"{BOTH} --kind probabilities --prediction-column p",
    {
        "old.csv": {
            "id": IDS,
            "label": LABELS % 2,
            "p": OLD_PROBS[:, 1] + OLD_PROBS[:, 3],
        },
        "new.csv": {
            "id": IDS,
            "label": LABELS % 2,
            "p": NEW_PROBS[:, 1] + NEW_PROBS[:, 3],
        },
    },
    pages=True,
)
cli(
    "scores.binary_logits",
    f"{BOTH} --kind logits --prediction-column p",
    {
        "old.csv": {"id": IDS, "label": LABELS % 2, "p": OLD[:, 1] - OLD[:, 0]},
        "new.csv": {"id": IDS, "label": LABELS % 2, "p": NEW[:, 1] - NEW[:, 0]},
    },
)
cli(
    "scores.integers",
    f"{NPZ} --kind logits",
    {
        "old.npz": OWN | {"logits": (10 * OLD).astype(int)},
        "new.npz": OTHER | {"logits": (10 * NEW).astype(int)},
    },
)
cli(
    "scores.all_columns",
    f"{BOTH} --kind probabilities",
    {
        "old.csv": {"id": IDS, "label": named(LABELS)}
        | {n: OLD_PROBS[:, c] for c, n in enumerate(NAMES)},
        "new.csv": {"id": IDS, "label": named(LABELS)}
        | {n: NEW_PROBS[:, c] for c, n in enumerate(NAMES)},
    },
)
WIDE = np.random.default_rng(5)
MANY = 60
WIDE_Y = WIDE.integers(0, MANY, 300)
WIDE_S = 3 * np.eye(MANY)[WIDE_Y] + WIDE.normal(size=(300, MANY))
cli(
    "scores.many_classes",
    NPZ,
    {
        "old.npz": {"ids": np.arange(300), "labels": WIDE_Y, "logits": WIDE_S},
        "new.npz": {
            "ids": np.arange(300),
            "labels": WIDE_Y,
            "logits": WIDE_S + WIDE.normal(size=(300, MANY)),
        },
    },
    pages=True,
)
LONG = np.random.default_rng(6)
LONG_Y = LONG.integers(0, 3, 20_000)
LONG_S = (1.5 * np.eye(3)[LONG_Y] + LONG.normal(size=(20_000, 3))).astype(np.float32)
cli(
    "scores.many_examples",
    NPZ,
    {
        "old.npz": {"ids": np.arange(20_000), "labels": LONG_Y, "logits": LONG_S},
        "new.npz": {
            "ids": np.arange(20_000),
            "labels": LONG_Y,
            "logits": LONG_S + 0.5 * LONG.normal(size=LONG_S.shape).astype(np.float32),
        },
    },
)
cli(
    "scores.few_examples",
    "old.csv new.csv",
    {
        "old.csv": side(OLD_PROBS, "prob_", order=np.arange(3)),
        "new.csv": side(NEW_PROBS, "prob_", order=np.arange(3)),
    },
    pages=True,
)
cli(
    "scores.one_example",
    "old.csv new.csv",
    {
        "old.csv": side(OLD_PROBS, "prob_", order=np.arange(1)),
        "new.csv": side(NEW_PROBS, "prob_", order=np.arange(1)),
    },
)
cli(
    "classes.perfect",
    BOTH,
    {"old.csv": side(classes=OLD_CLASS), "new.csv": side(classes=LABELS)},
    pages=True,
)
cli(
    "classes.worse",
    BOTH,
    {"old.csv": side(classes=LABELS), "new.csv": side(classes=NEW_CLASS)},
    pages=True,
)
cli(
    "classes.unchanged",
    BOTH,
    {"old.csv": side(classes=OLD_CLASS), "new.csv": side(classes=OLD_CLASS)},
    pages=True,
)
cli(
    "classes.one_class",
    BOTH,
    {"old.csv": side(classes=0 * OLD_CLASS), "new.csv": side(classes=0 * OLD_CLASS)},
)
HARM = "<b>|`x`](javascript:alert(1))\x1b[31m\u202e"
cli(
    "classes.names_that_harm",
    "old.jsonl new.jsonl --by region",
    {
        "old.jsonl": side(
            classes=named(OLD_CLASS, [HARM, *NAMES[1:]]),
            labels=named(LABELS, [HARM, *NAMES[1:]]),
            region=named(LABELS, ["<i>", "|", "*", "\n"]),
        ),
        "new.jsonl": side(
            classes=named(NEW_CLASS, [HARM, *NAMES[1:]]),
            labels=named(LABELS, [HARM, *NAMES[1:]]),
            region=named(LABELS, ["<i>", "|", "*", "\n"]),
        ),
    },
    pages=True,
)

# Doubts

SAME = pair()
cli("doubt.same_file", "old.csv old.csv", SAME)
cli("doubt.same_file_confirmed", "old.csv old.csv --confirm same-file", SAME)
cli(
    "doubt.many",
    "old.csv new.csv",
    {
        "old.csv": {
            "id": np.arange(30),
            "prediction": [f"text {i}" for i in range(30)],
        },
        "new.csv": {
            "id": np.arange(30),
            "prediction": [f"text {i + 1}" for i in range(30)],
        },
    },
)
cli(
    "doubt.many_confirmed",
    "old.csv new.csv --confirm many-classes",
    {
        "old.csv": {
            "id": np.arange(30),
            "prediction": [f"text {i}" for i in range(30)],
        },
        "new.csv": {
            "id": np.arange(30),
            "prediction": [f"text {i + 1}" for i in range(30)],
        },
    },
)
WRONG = {"old.csv": side(classes=OLD_CLASS), "new.csv": side(classes=(LABELS + 1) % C)}
cli("doubt.below_chance", BOTH, WRONG)
cli("doubt.below_chance_confirmed", f"{BOTH} --confirm below-chance", WRONG)
NEVER = {
    "old.csv": side(classes=(LABELS + 1) % C),
    "new.csv": side(classes=(LABELS + 2) % C),
}
cli("doubt.never_right", BOTH, NEVER)
cli(
    "doubt.other_names",
    BOTH,
    {
        "old.csv": side(
            classes=named(OLD_CLASS, ["a", "b", "c", "d"]), labels=named(LABELS)
        ),
        "new.csv": side(classes=named(NEW_CLASS), labels=named(LABELS)),
    },
)
TURNED = {
    "old.csv": side(classes=named(OLD_CLASS), labels=named(LABELS)),
    "new.csv": side(classes=named(LABELS, [*NAMES[:3], "bird"]), labels=named(LABELS)),
}
cli("doubt.renamed", BOTH, TURNED)
cli("doubt.renamed_confirmed", f"{BOTH} --confirm renamed-classes", TURNED)
DECISIONS = {
    "old.csv": side(OLD_PROBS, "prob_", classes=OLD_CLASS),
    "new.csv": side(NEW_PROBS, "prob_", classes=(NEW_CLASS + 1) % C),
}
cli("doubt.decisions", BOTH, DECISIONS)
cli("doubt.decisions_confirmed", f"{BOTH} --confirm decisions below-chance", DECISIONS)
NORM = {
    name: side(of) | {"logit_norm": np.full(N, 50.0)}
    for name, of in (("old.csv", OLD), ("new.csv", NEW))
}
cli("doubt.score_columns", BOTH, NORM)
cli("doubt.score_columns_confirmed", f"{BOTH} --confirm score-columns", NORM)
cli(
    "doubt.zero_scores",
    NPZ,
    {"old.npz": OWN, "new.npz": OTHER | {"logits": np.zeros((N, C))}},
)
cli(
    "doubt.never_label",
    NPZ,
    {
        "old.npz": OWN,
        "new.npz": OTHER | {"logits": np.concatenate([NEW, np.full((N, 1), 9.0)], 1)},
    },
    bare=True,
)
cli(
    "doubt.never_label_identity",
    f"{NPZ} --class-map identity",
    {
        "old.npz": OWN,
        "new.npz": OTHER | {"logits": np.concatenate([NEW, np.full((N, 1), 9.0)], 1)},
    },
    bare=True,
)

# Gates

LIMITS = """
--max-churn 20%
--max-churn 0.5
--max-nfr 5%
--max-nfr 50%
--min-accuracy-gain -5%
--min-accuracy-gain=0
--max-churn 99% --max-nfr 0
--inconclusive pass --max-nfr 3%
""".strip().splitlines()
for number, words in enumerate(LIMITS):
    cli(
        f"gates.option_{number}",
        f"{BOTH} {words}",
        pair(),
        pages=number in (3, 6),
        bare=number > 6,
    )
GATED = {
    "everything": """
on = "bound"
min-examples = 30
max-churn = "50%"
max-nfr = {limit = 0.01, on = "estimate"}
min-accuracy-gain = "-0.5%"
[slices]
max-churn = 0.1
[slices.region]
min-examples = 10
max-churn = 0.2
[slices.region."north"]
on = "estimate"
max-churn = 0.9
[classes]
max-nfr = {limit = "2 %", min-examples = 5}
[classes.2]
max-nfr = 0.03
""",
    "interval": 'on = "interval"\nmax-churn = 0.3\nmax-nfr = 0.5\n[slices]\nmax-nfr = 0.1\n[classes]\nmax-churn = "25%"',
    "equivalent": "equivalent = 0.05\nmax-pfr = 0.9",
    "equivalent_interval": 'equivalent = {limit = 0.05, on = "interval"}',
    "short": "max-nfr = 0.2\nmax-pfr = 0.3\nmax-relative-nfr = 0.9\nmin-btc = 0.5\nmin-bec = 0.1\nmin-kappa = 0.1",
    "small": "min-examples = 500\n[classes]\nmax-churn = 0.5",
    "rounded": "max-churn = 0.29166",
    "overridden": "[classes]\nmax-nfr = 0.1\n[classes.0]\nmax-nfr = 0.2\n[classes.1]\nmax-nfr = 0.2\n[classes.2]\nmax-nfr = 0.2\n[classes.3]\nmax-nfr = 0.2",
    "waivers": 'max-nfr = 0.05\n[slices]\nmax-nfr = "30%"\n'
    + "".join(
        f'[[waive]]\nid = "{i}"\nreason = "known {i}"\nuntil = 2999-12-31\n'
        for i in (10, 17, 507)
    )
    + '[[waive]]\nid = "633"\nreason = "old"\nuntil = "2001-01-01"\n'
    + '[[waive]]\nid = "nothing"\nreason = "gone"\nuntil = 2999-01-01T00:00:00\n'
    + f'[[waive]]\nid = {IDS[LABELS == NEW_CLASS][0]}\nreason = "no flip"\nuntil = 2999-01-01\n',
}
for name, text in GATED.items():
    cli(
        f"gates.file_{name}",
        f"{BOTH} --gates g.toml --by region",
        pair() | {"g.toml": text},
        pages=True,
    )
cli(
    "gates.both",
    f"{BOTH} --gates g.toml --max-churn 40%",
    pair() | {"g.toml": 'max-churn = "1%"\nmax-nfr = 0.5'},
)
for how in ("pass", "fail", "exit"):
    cli(
        f"gates.inconclusive_{how}",
        f"{BOTH} --gates g.toml --by region --inconclusive {how}",
        pair()
        | {
            "g.toml": 'on = "interval"\nmax-churn = 0.3',
        },
        bare=True,
    )
QUANTITY_GATES = """
max-accuracy-old max-accuracy-new max-ece-old max-ece-new max-nll-new max-brier-new
max-nll-change max-ece-change max-brier-change max-agreement max-jensen-shannon max-js
max-total-variation max-kl max-symmetric-kl max-good-churn max-bad-churn max-neutral-churn
max-relative-churn max-confidence-change max-positive-flip-rate max-excess-churn max-mean-displacement
min-backward-trust-compatibility min-backward-error-compatibility
""".split()
RUNS = {"old.npz": OWN | {"logits": OLD_RUNS}, "new.npz": OTHER | {"logits": NEW_RUNS}}


def every_gate(path):
    """A gate on every quantity that there is, by the public list of them."""
    from churn_compare import QUANTITIES

    names = [n for n, of in QUANTITIES.items() if not of.outcomes]
    path.write_text(
        "".join(f"max-{n.replace('_', '-')} = 0.123\n" for n in names)
        + "max-excess-churn = 0.05\n"
    )


for on in ("estimate", "bound", "interval"):

    def gates(path, on=on):
        every_gate(path)
        path.write_text(f'on = "{on}"\n' + path.read_text())

    cli(
        f"gates.every_quantity_{on}",
        f"{NPZ} --gates g.toml",
        RUNS | {"g.toml": gates},
        pages=on == "interval",
    )
for quantity in QUANTITY_GATES:
    cli(
        f"gates.of_{quantity}",
        f"{NPZ} --gates g.toml",
        RUNS | {"g.toml": f"{quantity} = 0.2"},
        bare=True,
    )
for number, text in enumerate(
    (
        "[slices]\nmin-accuracy-new = 0.5\nmax-pfr = 0.5\nmin-accuracy-gain = 0",
        "[classes]\nmin-accuracy-old = 0.5\nmax-pfr = 0.5\nmin-accuracy-gain = -0.1",
        'on = "bound"\n[classes]\nmin-accuracy-gain = -0.1',
        '[slices.region]\nmax-nfr = 0.04\n[slices."device".phone]\nmax-nfr = 0.01',
    )
):
    cli(
        f"gates.groups_{number}",
        f"{BOTH} --gates g.toml --by region device",
        pair() | {"g.toml": text},
        bare=True,
    )
cli(
    "gates.relative_undefined",
    f"{BOTH} --gates g.toml",
    {
        "old.csv": side(classes=OLD_CLASS),
        "new.csv": side(classes=LABELS),
        "g.toml": "max-relative-nfr = 0.1",
    },
)

# Outputs

cli("output.demo", "--demo", also=("churn-demo.html",), bare=True)
cli("output.demo_full", "--demo --full --json d.json", also=("d.json",), bare=True)
cli(
    "output.github",
    f"{BOTH} --github --max-nfr 1%",
    pair(),
    bare=True,
    also=("summary.md",),
    before=lambda: os.environ.update(GITHUB_STEP_SUMMARY="summary.md"),
)
cli(
    "output.no_github",
    f"{BOTH} --github",
    pair(),
    bare=True,
    before=lambda: os.environ.pop("GITHUB_STEP_SUMMARY", None),
)
cli(
    "output.folder",
    f"{BOTH} --html a/b.html --json a/c.json",
    pair(),
    bare=True,
    also=("a/c.json",),
)
cli("output.verbose", f"{BOTH} --verbose", pair(), bare=True)
cli("output.version", "--version", bare=True)
cli("output.help", "-h", bare=True)
cli("output.help_long", "--help", bare=True)

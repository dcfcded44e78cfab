"""Files and options of predicted classes that are refused, each with its sentence."""

import gzip
import json

import numpy as np

from tests.freeze.inputs import (
    GROUPS,
    IDS,
    LABELS,
    NAMES,
    NEW,
    NEW_CLASS,
    OLD,
    OLD_CLASS,
    OLD_PROBS,
    OTHER,
    OWN,
    USER,
    C,
    N,
    named,
    pair,
    side,
)
from tests.freeze.registry import refused
from tests.freeze.session import write

BOTH = "old.csv new.csv"
GOOD = pair()
ROWS = "id,label,prediction\n" + "".join(f"e{i},a,{'ab'[i % 2]}\n" for i in range(30))

# Words of the command

for name, words in {
    "nothing": "",
    "one": "old.csv",
    "gone": "gone.csv new.csv",
    "gone_new": "old.csv gone.csv",
    "chrun": f"{BOTH} --max-chrun 1%",
    "unknown": f"{BOTH} --zzzzz",
    "five": f"{BOTH} --max-churn 5",
    "five_x": f"{BOTH} --max-churn 5x",
    "one_one": f"{BOTH} --max-churn 1",
    "minus": f"{BOTH} --max-nfr -0.1",
    "no_value": f"{BOTH} --max-churn",
    "normalize": f"{BOTH} --normalize all",
    "class_limit": f"{BOTH} --max-class-churn 1%",
    "slice_limit": f"{BOTH} --max-slice-churn 1%",
    "ece": f"{BOTH} --max-ece-new=1%",
    "on": f"{BOTH} --on bound",
    "min_examples": f"{BOTH} --min-examples 3",
    "resamples": f"{BOTH} --resamples 10",
    "seed": f"{BOTH} --seed 1",
    "old_kind": f"{BOTH} --old-kind logits",
    "top": f"{BOTH} --top 3",
    "ignore_inputs": f"{BOTH} --ignore-inputs",
    "demo": f"{BOTH} --demo",
    "no_slices": f"{BOTH} --max-slice-nfr 1%",
    "excess": f"{BOTH} --max-excess-churn 1%",
    "html_folder": f"{BOTH} --html .",
    "json_device": f"{BOTH} --json /dev/null",
    "html_csv": f"{BOTH} --html page.csv",
    "over_old": f"{BOTH} --markdown old.csv",
    "over_map": f"{BOTH} --class-map m.json --json ./m.json",
    "over_each_other": f"{BOTH} --json a --markdown a",
    "gates_gone": f"{BOTH} --gates gone.toml",
    "gates_folder": f"{BOTH} --gates .",
    "slices_gone": f"{BOTH} --slices gone.csv",
    "labels_gone": f"{BOTH} --labels gone.csv",
    "order": f"{BOTH} --order a b",
    "level": f"{BOTH} --level 1.5",
    "level_text": f"{BOTH} --level x",
    "confirm": f"{BOTH} --confirm all",
    "kind": f"{BOTH} --kind text",
    "missing": f"{BOTH} --on-missing drop",
    "inconclusive": f"{BOTH} --inconclusive maybe",
    "pool": f"{BOTH} --pool nothing",
    "pool_close": f"{BOTH} --by region --pool regions",
    "by": f"{BOTH} --by nothing",
    "by_prediction": f"{BOTH} --by prediction",
    "by_and_slices": f"{BOTH} --by region --slices g.csv",
    "cluster": f"{BOTH} --cluster nothing",
    "equivalent": f"{BOTH} --equivalent x",
    "equivalent_0": f"{BOTH} --equivalent 0",
    "equivalent_1": f"{BOTH} --equivalent 1",
    "score_column": f"{BOTH} --score-column nothing",
    "tolerance": f"{BOTH} --tolerance 1",
    "grades": f"{BOTH} --grades A=1",
    "lower": f"{BOTH} --lower-is-better x",
    "share_worse": f"{BOTH} --max-share-worse 10%",
    "score_change": f"{BOTH} --min-score-change 0",
    "map_gone": f"{BOTH} --class-map identiti",
    "map_gone_json": f"{BOTH} --class-map gone.json",
    "extra": f"{BOTH} third.csv",
    "class_map_identity": f"{BOTH} --class-map identity --kind logits",
    "verbose": "gone.csv new.csv",
    "kind_probabilities": f"{BOTH} --kind probabilities",
    "kind_logits": f"{BOTH} --kind logits",
    "same_word": "old.csv ./old.csv",
}.items():
    refused(f"words_{name}", words, GOOD | {"g.csv": GROUPS, "m.json": "{}"})
for name, words in {
    "max_nfr": "--max-nfr 1%",
    "equivalent": "--equivalent 1%",
    "pool": "--by region --pool region",
    "max_slice_nfr": "--by region --max-slice-nfr 1%",
    "waivers": "--gates g.toml",
    "gate_equivalent": "--gates h.toml",
    "class_gate": "--gates i.toml",
    "ece": "--gates j.toml",
}.items():
    refused(
        f"no_labels_{name}",
        f"{BOTH} {words}",
        pair(labels=None)
        | {
            "g.toml": 'max-churn = 0.1\n[[waive]]\nid = "1"\nreason = "x"\nuntil = 2999-01-01',
            "h.toml": "equivalent = 0.1",
            "i.toml": "[classes]\nmax-churn = 0.1",
            "j.toml": "max-ece-new = 0.1",
        },
    )

# Gate files

for number, text in enumerate(
    (
        "max-chrun = 0.1",
        "churn = 0.1",
        "zzz = 0.1",
        "[slices.region]\nmax-nrf = 0.1",
        "[slices]\nmax-kappa = 0.1",
        "[classes.7]\nmax-nfr = 'x'",
        "max-nfr = true",
        "max-nfr = nan",
        "max-nfr = 1" + "0" * 400,
        "max-nfr = 2",
        "max-nfr = 1",
        "[slices]\nmin-accuracy-gain = -1.0",
        "equivalent = '1'",
        "max-nfr = {on = 'bound'}",
        "[slices]\nmax-nfr = {on = 'bound'}",
        "max-nfr = {limit = 0.1, of = 1}",
        "max-nfr = {limit = 0.1, om = 'bound'}",
        "on = 'top'\nmax-nfr = 0.1",
        "min-examples = 0\nmax-nfr = 0.1",
        "[slice]\nmax-nfr = 0.1",
        "slices = 3",
        "",
        "on = 'bound'",
        "max-nfr = 0.1\n[classes]\non = 'bound'",
        "max-nfr = 0.1\n[slices.region.north]",
        "max-nfr = = 1",
        "max-nfr = 0.1\nmax-nfr = 0.2",
        "equivalent = -0.1",
        "[classes]\nequivalent = 0.1",
        'on = "bound"\n[classes]\nmin-accuracy-new = 0.5',
        "[classes.9]\nmax-nfr = 0.1",
        "[slices.regions]\nmax-nfr = 0.1",
        "[slices.region.nrth]\nmax-nfr = 0.1",
        "[slices.region.zzz]\nmax-nfr = 0.1",
        "max-share-worse = 0.1",
        "max-ece-new = 0.1",
        "max-nll-change = 0.1",
        "max-excess-churn = 0.1",
        "max-churn = 0.1\nwaive = 3",
        "max-churn = 0.1\n[[waive]]\nid = 'a'",
        "max-churn = 0.1\n[[waive]]\nid = 'a'\nreason = 'b'\nuntil = 'soon'",
        "max-churn = 0.1\n[[waive]]\nid = 'a'\nreson = 'b'\nuntil = 2999-01-01",
        "max-churn = 0.1\n[[waive]]\nid = 'a'\nzzzzzz = 'b'",
        "max-churn = 0.1\nwaive = [3]",
        "max-churn = 0.1"
        + "\n[[waive]]\nid = 'a'\nreason = 'b'\nuntil = 2999-01-01" * 2,
        b"# \xe9\nmax-nfr = 0.1",
        "max-nfr = []",
        "max-nfr = '3%%'",
        "max-runs-agree = 0.1",
        "max_nrf = 0.1",
        "min-nll-new = inf",
    )
):
    refused(
        f"gates_{number:02d}",
        f"{BOTH} --gates g.toml --by region",
        GOOD | {"g.toml": text},
    )
refused(
    "gates_slice_called_class",
    f"{BOTH} --gates g.toml --slices s.csv",
    GOOD
    | {
        "g.toml": "[slices]\nmax-churn = 0.1",
        "s.csv": {"id": IDS, "class": LABELS, "x": LABELS},
    },
)

# Files that cannot be read

OTHER_ROWS = ROWS.replace("e1,a,b", "e1,a,a")


def bad(name, content, words="", file="a.csv", **more):
    """A bad old side next to a good new one."""
    refused(
        f"file_{name}",
        f"{file} b.csv {words}",
        {file: content, "b.csv": OTHER_ROWS} | more,
    )


bad("empty", b"")
bad("only_names", "id,label,prediction\n")
bad("nul", ROWS.replace("e3,", "e\0,"))
bad("latin", ROWS.replace("e3,", "\xe9,").encode("latin-1"))
bad("long_row", ROWS.replace("e3,", "x" * 5_000_000 + ","))
bad("open_quote", ROWS.replace("e3,a", 'e3,"a'))
bad("ragged", ROWS.replace("e3,a,", "e3,a,b,"))
bad("cut_gz", gzip.compress(ROWS.encode(), mtime=0)[:40], file="a.csv.gz")
bad("columns_twice", ROWS.replace("label", "id"))
bad("header_again", ROWS + "id,label,prediction\n")
bad("header_in_the_middle", ROWS + ROWS)
bad("no_header", "".join(f"e{i},a\n" for i in range(30)))
bad("no_header_numbers", "".join(f"{i},{i % 3}\n" for i in range(30)))
bad("no_header_fractions", "".join(f"{i / 7:.3f},{1 - i / 7:.3f}\n" for i in range(30)))
bad("no_header_alike", "".join(f"e{i},x{i}\n" for i in range(30)))
bad("no_header_one_column", "".join(f"{i % 3}\n" for i in range(30)))
bad("spaces", "some names\n" + "".join(f"{i} {i % 3}\n" for i in range(30)))
bad("two_marks", "a;b,id;prediction\n1;2,3;4\n5;6,7;8\n")
bad("missing_prediction", ROWS.replace("e3,a,b", "e3,a,"))
bad("missing_label", ROWS.replace("e3,a,", "e3,,"))
bad("missing_id", ROWS.replace("e3,", ","))
bad("id_twice", ROWS.replace("e3,", "e4,"))
bad("fractions", ROWS.replace(",a\n", ",0.5\n").replace(",b\n", ",1.25\n"))
bad("negative", ROWS.replace(",a\n", ",-3\n").replace(",b\n", ",1\n"))
bad("million", ROWS.replace(",a\n", ",3000000\n").replace(",b\n", ",1\n"))
bad("labels_numbers", ROWS.replace(",a,", ",1,"))
bad("no_prediction_column", ROWS.replace("prediction", "thing"))
bad(
    "many_columns",
    ROWS.replace("prediction\n", ",".join(f"c{i}" for i in range(40)) + "\n").replace(
        "\ne", "\ne"
    ),
)
bad(
    "text_in_scores",
    "id,prob_a,prob_b\n"
    + "".join(f"e{i},0.5,{'x' if i == 3 else 0.5}\n" for i in range(30)),
)
bad(
    "empty_in_scores",
    "id,prob_a,prob_b\n"
    + "".join(f"e{i},0.5,{'' if i == 3 else 0.5}\n" for i in range(30)),
)
bad(
    "sum_of_probabilities",
    "id,prob_a,prob_b\n" + "".join(f"e{i},0.5,{0.5 + i / 90}\n" for i in range(30)),
)
bad("percent", "id,prob_a,prob_b\n" + "".join(f"e{i},50,50\n" for i in range(30)))
bad(
    "negative_probability",
    "id,prob_a,prob_b\n" + "".join(f"e{i},-0.5,1.5\n" for i in range(30)),
)
bad(
    "nan_scores",
    "id,logit_a,logit_b\n"
    + "".join(f"e{i},{'nan' if i < 4 else 0.5},0\n" for i in range(30)),
)
bad(
    "infinite_scores",
    "id,logit_a,logit_b\n"
    + "".join(f"e{i},{'inf' if i < 4 else 0.5},0\n" for i in range(30)),
)
bad(
    "minus_infinite_rows",
    "id,logit_a,logit_b\n"
    + "".join(f"e{i},{'-inf,-inf' if i < 4 else '0.5,0'}\n" for i in range(30)),
)
bad("one_class", "id,logit_a\n" + "".join(f"e{i},0.5\n" for i in range(30)))
bad(
    "class_numbers",
    "id,logit_1,logit_3\n" + "".join(f"e{i},0.5,1\n" for i in range(30)),
)
bad("lists_text", "id;logits\n" + "".join(f"e{i};[0.5 x]\n" for i in range(30)))
bad(
    "lists_short",
    "id;logits\n" + "".join(f"e{i};[0.5{'' if i == 3 else ' 1'}]\n" for i in range(30)),
)
bad("json_lines_deep", '{"id": ' + "[" * 100_000, file="a.jsonl")
bad("json_lines_latin", b'{"id": "\xe9", "prediction": 1}', file="a.jsonl")
bad("json_lines_second", '{"id": 1, "prediction": 1}\n{"id": 2, "pred', file="a.jsonl")
bad("json_lines_number", '{"id": 1, "prediction": 1}\n7', file="a.jsonl")
bad("json_lines_list", "[1, 2]\n[3, 4]", file="a.jsonl")
bad("json_lines_empty", "\n\n", file="a.jsonl")
bad(
    "json_lines_long_name",
    json.dumps({"id": 1, "prediction": "<b>" * 100_000}),
    file="a.jsonl",
)
bad(
    "json_lines_long_id",
    json.dumps({"id": "i" * 20_000, "prediction": "b"}),
    file="a.jsonl",
)
bad(
    "json_lines_mixed_ids",
    '{"id": 1, "prediction": 1}\n{"id": "b", "prediction": 1}\n{"id": 2.5, "prediction": 1}',
    file="a.jsonl",
)
bad(
    "json_lines_float_ids",
    '{"id": 1.5, "prediction": 1}\n{"id": 2.5, "prediction": 1}',
    file="a.jsonl",
)
bad(
    "json_lines_lists",
    '{"id": 1, "prediction": ["a"]}\n{"id": 2, "prediction": ["b"]}',
    file="a.jsonl",
)
bad(
    "json_lines_dicts",
    '{"id": 1, "prediction": {"a": 1}}\n{"id": 2, "prediction": {"a": 2}}',
    file="a.jsonl",
)
bad("json_not", "{", file="a.json")
bad("json_latin", b'"\xe9"', file="a.json")
bad("json_deep", "[" * 100_000 + "]" * 100_000, file="a.json")
bad("json_number", "7", file="a.json")
bad("json_ragged_columns", '{"id": [1, 2], "prediction": [1]}', file="a.json")
bad("json_object", '{"a": 1}', file="a.json")
bad("json_mixed", '[{"id": 1}, 2]', file="a.json")
bad("json_ragged_list", "[[1, 2], [3]]", file="a.json")
bad("json_empty_list", "[]", file="a.json")
bad("npz_cut", b"PK\x03\x04" + bytes(100), file="a.npz")
bad("npz_text", "hello", file="a.npz")
bad("npz_nothing", lambda p: np.savez(p), file="a.npz")
bad("npz_no_predictions", {"ids": [1], "weights": [2]}, file="a.npz")
bad("npz_lengths", {"ids": np.arange(3), "predictions": np.arange(4)}, file="a.npz")
bad(
    "npz_label_lengths",
    {"labels": np.arange(3), "predictions": np.arange(4)},
    file="a.npz",
)
bad(
    "npz_label_shape",
    {"labels": np.zeros((4, 2), int), "predictions": np.arange(4)},
    file="a.npz",
)
bad(
    "npz_ids_shape",
    {"ids": np.zeros((4, 2), int), "predictions": np.arange(4)},
    file="a.npz",
)
bad(
    "npz_ids_float",
    {"ids": np.arange(4) / 2, "predictions": np.arange(4)},
    file="a.npz",
)
bad(
    "npz_ids_bytes",
    {"ids": np.array([b"\xe9", b"b"]), "predictions": np.arange(2)},
    file="a.npz",
)
bad("npz_dates", {"predictions": np.array(["2020-01-01"], "M8[D]")}, file="a.npz")
bad("npz_complex", {"predictions": np.array([1j, 2])}, file="a.npz")
bad("npz_names_count", OWN | {"class_names": np.array(["a", "b"])}, file="a.npz")
bad(
    "npz_names_twice",
    OWN | {"class_names": np.array(["a", "b", "a", "c"])},
    file="a.npz",
)
bad(
    "npz_names_empty",
    OWN | {"class_names": np.array(["a", "b", "", "c"])},
    file="a.npz",
)
bad("npz_names_shape", OWN | {"class_names": np.zeros(4)}, file="a.npz")
bad("npz_meta_stopped", OWN | {"meta": json.dumps({"stopped": [7]})}, file="a.npz")
bad(
    "npz_meta_odd", OWN | {"meta": json.dumps({"stopped": [{"step": 7}]})}, file="a.npz"
)
bad("npz_all_stopped", OWN | {"meta": json.dumps({"stopped": [0]})}, file="a.npz")
bad("npz_decisions_shape", OWN | {"preds": np.arange(3)}, file="a.npz")
bad("npz_decisions_scores", OWN | {"preds": np.zeros((N, C))}, file="a.npz")
bad("npz_decisions_unknown", OWN | {"preds": OLD_CLASS + 2}, file="a.npz")
bad("npz_classes_shape", {"predictions": np.zeros((9, 2), int)}, file="a.npz")
bad("npz_four_axes", {"logits": np.zeros((2, 2, 2, 2))}, file="a.npz")
bad("npz_empty", {"logits": np.zeros((0, 3))}, file="a.npz")
bad("npz_one_score", {"logits": np.zeros((9, 1))}, "--kind classes", file="a.npz")
bad(
    "npz_scores_as_classes",
    {"logits": np.zeros((9, 3))},
    "--kind classes",
    file="a.npz",
)
bad(
    "npz_texts_as_logits",
    {"predictions": np.array(["a", "b"])},
    "--kind logits",
    file="a.npz",
)
bad("npz_unsure", {"predictions": np.tile([[0.2, 0.3]], (9, 1))}, file="a.npz")
bad("npz_two_scores", {"logits": OLD, "logit": OLD}, file="a.npz")
bad("npy_header", b"\x93NUMPY\x01\x00\xff\xff{", file="a.npy")
bad("npy_text", "hello", file="a.npy")
bad(
    "npy_cut",
    lambda p: (np.save(p, OLD), p.write_bytes(p.read_bytes()[:-8])),
    file="a.npy",
)
bad(
    "npy_pickle",
    lambda p: np.save(p, np.array([{}, 1], object), allow_pickle=True),
    file="a.npy",
)
bad(
    "npz_pickle",
    lambda p: np.savez(p, predictions=[0, 1], ids=np.array([{}, 1], object)),
    file="a.npz",
)
bad("npz_flipped", lambda p: (np.savez(p, **OWN), _flip(p)), file="a.npz")
bad("npz_twice", lambda p: _twice(p), file="a.npz")
bad("parquet", b"PAR1" + b"\xff" * 100 + b"PAR1", file="a.parquet")
bad("parquet_text", "hello", file="a.parquet")
bad(
    "parquet_cut",
    lambda p: (write(p, side(OLD)), p.write_bytes(p.read_bytes()[:400])),
    file="a.parquet",
)
bad("feather_text", "hello", file="a.feather")
bad(
    "arrow_cut",
    lambda p: (write(p, side(OLD)), p.write_bytes(p.read_bytes()[:900])),
    file="a.arrow",
)
bad(
    "parquet_structs",
    {"id": [1, 2], "probability": [{"a": 1}, {"a": 2}]},
    file="a.parquet",
)
bad("parquet_lists_of_texts", {"id": [1, 2], "probs": [["a"], ["b"]]}, file="a.parquet")
bad(
    "parquet_lists_short",
    {"id": [1, 2, 3], "probs": [[0.5, 0.5], [1.0], [0.5, 0.5]]},
    file="a.parquet",
)
bad("parquet_lists_null", {"id": [1, 2], "probs": [None, None]}, file="a.parquet")
bad(
    "parquet_sparse",
    {
        "id": [1],
        "probability": [{"type": 0, "size": 2, "indices": [0], "values": [1.0]}],
    },
    file="a.parquet",
)
bad(
    "parquet_texts_in_scores",
    {"id": [1, 2], "prob_a": ["x", "y"], "prob_b": [0.5, 0.5]},
    file="a.parquet",
)
bad(
    "parquet_null_prediction", {"id": [1, 2], "prediction": [None, 1]}, file="a.parquet"
)
bad("parquet_null_id", {"id": [None, 1], "prediction": [1, 1]}, file="a.parquet")
bad("parquet_float_id", {"id": [0.5, 1], "prediction": [1, 1]}, file="a.parquet")
bad(
    "parquet_empty",
    {"id": np.zeros(0, int), "prediction": np.zeros(0, int)},
    file="a.parquet",
)
bad("folder_empty", None, file="a")
bad("folder_other", lambda p: (p.mkdir(), (p / "notes.txt").write_text("x")), file="a")
bad("folder_delta", lambda p: (p / "_delta_log").mkdir(parents=True), file="a")
bad(
    "folder_parts_differ",
    lambda p: _parts(p, ROWS, ROWS.replace("prediction", "pred")),
    file="a",
)
bad("folder_parts_empty", lambda p: _parts(p, "", ""), file="a")
bad("folder_part_bad", lambda p: _parts(p, ROWS, b"\xe9\xe9,\xff\n"), file="a")
bad("fifo", lambda p: __import__("os").mkfifo(p), file="a.csv")
for ending in (
    "xlsx",
    "pkl",
    "pt",
    "h5",
    "safetensors",
    "zip",
    "tar",
    "bz2",
    "rds",
    "txt",
    "md",
    "",
):
    bad(f"ending_{ending or 'none'}", "x", file=f"a.{ending}".rstrip("."))


def _flip(path):
    content = bytearray(path.read_bytes())
    content[content.index(b"logits.npy") + 400] ^= 255
    path.write_bytes(content)


def _twice(path):
    import warnings
    import zipfile

    with zipfile.ZipFile(path, "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.writestr("ids.npy", b"")
        file.writestr("ids.npy", b"")


def _parts(path, *texts):
    path.mkdir()
    (path / "_SUCCESS").touch()
    for number, text in enumerate(texts):
        write(path / f"part-0000{number}.csv", text)


# Sides that do not fit together

NPZ = "old.npz new.npz"
CLASSES = {"old.npz": {"ids": IDS, "labels": LABELS, "predictions": OLD_CLASS}}


def apart(name, old, new, words="", kind="npz", **more):
    """Two sides."""
    refused(
        f"join_{name}",
        f"old.{kind} new.{kind} {words}",
        {f"old.{kind}": old, f"new.{kind}": new} | more,
    )


apart("ids", OWN, OTHER | {"ids": IDS + 1})
apart("some_ids", OWN, {n: of[:90] for n, of in OTHER.items()})
apart("no_ids_intersect", OWN, OTHER | {"ids": IDS + 10_000}, "--on-missing intersect")
apart("ids_of_one", OWN, {"labels": LABELS, "logits": NEW})
apart("lengths", {"logits": OLD}, {"logits": NEW[:90]})
apart(
    "zeros",
    OWN | {"ids": np.array([f"{i:05d}" for i in IDS])},
    OTHER | {"ids": np.array([str(i) for i in IDS])},
)
apart(
    "capitals",
    OWN | {"ids": np.array([f"A{i}" for i in IDS])},
    OTHER | {"ids": np.array([f"a{i}" for i in IDS])},
)
apart(
    "thousands",
    OWN | {"ids": np.array([f"{i * 1000:,}" for i in IDS])},
    OTHER | {"ids": np.array([f"{i * 1000}" for i in IDS])},
)
apart(
    "unicode",
    OWN | {"ids": np.array([f"ａ{i}" for i in IDS])},
    OTHER | {"ids": np.array([f"a{i}" for i in IDS])},
)
apart(
    "inner_spaces",
    OWN | {"ids": np.array([f"a {i}" for i in IDS])},
    OTHER | {"ids": np.array([f"a{i}" for i in IDS])},
)
apart("labels", OWN, OTHER | {"labels": (LABELS + (np.arange(N) < 5)) % C})
apart("class_counts", {"ids": IDS, "logits": OLD}, {"ids": IDS, "logits": NEW[:, :3]})
apart("names_and_numbers", OWN | {"class_names": np.array(NAMES)}, OTHER)
apart(
    "predicted_names_and_numbers",
    {"ids": IDS, "predictions": named(OLD_CLASS)},
    {"ids": IDS, "predictions": NEW_CLASS},
    "--class-map identity",
)
apart(
    "identity_other_places",
    OWN | {"class_names": np.array(NAMES)},
    OTHER | {"class_names": np.array(NAMES[::-1]), "labels": 3 - LABELS},
    "--class-map identity",
)
apart(
    "identity_counts",
    {"ids": IDS, "logits": OLD[:, :3], "class_names": np.array(NAMES[:3])},
    {"ids": IDS, "logits": NEW},
    "--class-map identity",
)
apart(
    "label_of_no_class",
    {"ids": IDS, "logits": OLD},
    {"ids": IDS, "logits": NEW},
    "--labels y.csv",
    **{"y.csv": {"id": IDS, "label": LABELS + 2}},
)
apart(
    "label_names",
    {"ids": IDS, "logits": OLD},
    {"ids": IDS, "logits": NEW},
    "--labels y.csv",
    **{"y.csv": {"id": IDS, "label": named(LABELS)}},
)
apart(
    "label_numbers",
    {"ids": IDS, "predictions": named(OLD_CLASS)},
    {"ids": IDS, "predictions": named(NEW_CLASS)},
    "--labels y.csv",
    **{"y.csv": {"id": IDS, "label": LABELS}},
)
apart(
    "label_unknown_name",
    OWN | {"class_names": np.array(NAMES)},
    OTHER | {"class_names": np.array(NAMES)},
    "--labels y.csv",
    **{"y.csv": {"id": IDS, "label": named(LABELS, ["owl", *NAMES[1:]])}},
)
apart(
    "strip_twice",
    {"ids": np.array(["x", "x "]), "predictions": np.arange(2)},
    {"ids": np.array(["x", "y"]), "predictions": np.arange(2)},
    "--strip",
)
apart(
    "strip_classes",
    {"logits": np.zeros((2, 2)), "class_names": np.array(["p", "p "])},
    {"logits": np.zeros((2, 2)), "class_names": np.array(["p", "q"])},
    "--strip",
)
for number, (text, file) in enumerate(
    (
        ('{"a": 5}', "m.json"),
        ('{"x": 0}', "m.json"),
        ('{"a": 1, "b": 1}', "m.json"),
        ("{}", "m.json"),
        ('{"a": 1.5}', "m.json"),
        ("[1, 2]", "m.json"),
        ('{"a": 1, "a": 0}', "m.json"),
        ("{", "m.json"),
        ("a,b\n1,2\n", "m.csv"),
        ("old,new\n1\n", "m.csv"),
        ("old,new\n1\n", "m.txt"),
        ("", "m.csv"),
        ('{"a": true}', "m.json"),
        (b"\xff\xff", "m.json"),
        ('{"a": "b"}', "m.json"),
    )
):
    apart(
        f"map_{number:02d}",
        {
            "ids": np.arange(3),
            "logits": np.eye(3),
            "class_names": np.array(list("abc")),
        },
        {"ids": np.arange(3), "logits": np.eye(3)[:, :2]},
        f"--class-map {file}",
        **{file: text},
    )
apart(
    "map_taken",
    {"logits": np.eye(3), "class_names": np.array(list("abc"))},
    {"logits": np.eye(3), "class_names": np.array(list("bcd"))},
    "--class-map m.json",
    **{"m.json": '{"a": "b"}'},
)
for name, words, content in (
    ("empty", "--labels y.csv", b""),
    ("twice", "--labels y.csv", {"id": [1, 1], "label": [0, 1]}),
    ("no_column", "--labels y.csv", {"id": [1, 2], "x": [0, 1], "z": [0, 1]}),
    (
        "two_columns",
        "--labels y.csv",
        {"id": [1, 2], "label": [0, 1], "target": [0, 1]},
    ),
    ("fewer", "--labels y.csv", {"id": IDS[:100], "label": LABELS[:100]}),
    ("other_ids", "--labels y.csv", {"id": IDS + 10_000, "label": LABELS}),
    ("rows", "--labels y.csv", {"label": LABELS[:50]}),
    ("nan", "--labels y.csv", {"id": IDS, "label": ["", *LABELS[1:]]}),
    ("fractions", "--labels y.csv", {"id": IDS, "label": LABELS / 3}),
    ("shape", "--labels y.npy", np.zeros((N, 2))),
    ("disagree", "--labels y.csv", {"id": IDS, "label": (LABELS + 1) % C}),
    ("big", "--labels y.csv", {"id": IDS, "label": LABELS + 10**7}),
    (
        "archive",
        "--labels y.npz",
        OWN | {"labels": LABELS + 9, "class_names": np.array(NAMES)},
    ),
    ("order", "--labels y.csv", {"label": LABELS}),
    ("pickle", "--labels y.pkl", "x"),
    ("folder", "--labels y", None),
    ("slices_array", "--slices y.npy", LABELS),
    ("slices_only_ids", "--slices y.csv", {"id": IDS}),
    ("slices_many", "--slices y.csv", {"id": np.arange(300), "x": np.arange(300)}),
    ("slices_twice", "--slices y.csv", {"id": [1, 1], "x": [2, 2]}),
    ("slices_fewer", "--slices y.csv", {"id": IDS[:100], "x": LABELS[:100]}),
    ("slices_rows", "--slices y.csv", {"x": LABELS[:100]}),
    ("slices_predictions", "--slices y.csv", {"id": IDS, "prediction": LABELS}),
    ("slices_order", "--slices y.csv", {"x": LABELS}),
    ("slices_lists", "--slices y.jsonl", [{"id": int(i), "x": [1]} for i in IDS]),
    ("slices_lengths", "--slices y.npz", {"id": IDS, "x": np.arange(3)}),
    (
        "cluster_slices",
        "--slices y.csv --cluster x",
        {"id": IDS[:100], "x": LABELS[:100]},
    ),
    ("cluster_one", "--slices y.csv --cluster x", {"id": IDS, "x": 0 * IDS}),
    (
        "cluster_several",
        "--slices y.csv --cluster x",
        {"id": [*IDS, IDS[0]], "x": [*USER, USER[0] + 1]},
    ),
):
    file = words.split()[1]
    refused(
        f"about_{name}",
        f"{BOTH} {words}",
        pair(labels=None if "disagree" not in name else LABELS) | {file: content},
    )
refused(
    "about_slices_given_rows_but_ids_differ",
    f"{BOTH} --slices y.csv",
    GOOD | {"y.csv": {"x": LABELS}},
)
refused("about_ids_column", f"{BOTH} --id-column region", GOOD)
refused(
    "same_two_kinds",
    "old.csv old.csv --kind probabilities",
    {"old.csv": side(OLD_PROBS, "prob_")},
)
refused(
    "cluster_of_runs",
    f"{BOTH} --cluster user",
    {
        "old.csv": {
            "run": [0, 0, 1, 1],
            "id": [1, 2, 1, 2],
            "prediction": [0, 1, 1, 1],
            "user": [1, 2, 1, 3],
        },
        "new.csv": {"id": [1, 2], "prediction": [0, 1]},
    },
)
refused(
    "row_order_of_columns",
    f"{BOTH}",
    {
        "old.csv": "x,prediction\n" + "".join(f"{i % 11},{i % 2}\n" for i in range(55)),
        "new.csv": "x,prediction\n"
        + "".join(f"{(i + 4) % 11},{i % 2}\n" for i in range(55)),
    },
)

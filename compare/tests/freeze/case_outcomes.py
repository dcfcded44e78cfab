"""Outcomes other than classes by the command, and logs of evaluation tools."""

import io
import json
import struct
import zipfile
import zlib

import numpy as np

from tests.freeze.inputs import (
    BOOK,
    IDS,
    ITEMS,
    NEW,
    NEW_CLASS,
    OLD,
    OLD_CLASS,
    OLD_RUNS,
    OTHER,
    OWN,
    RIGHT_NEW,
    RIGHT_OLD,
    SAID_NEW,
    SAID_OLD,
    SCORE_NEW,
    SCORE_OLD,
    TARGET,
    TASK,
    USER,
    M,
    items,
    rankings,
    sets,
    side,
    stacked,
)
from tests.freeze.registry import cli, refused

BOTH = "old.jsonl new.jsonl"
RNG = np.random.default_rng(33)


def two(**columns):
    """Files of both sides; a column is a pair."""
    return {
        name: items(**{n: of[i] for n, of in columns.items()})
        for i, name in enumerate(("old.jsonl", "new.jsonl"))
    }


CORRECT = two(correct=(RIGHT_OLD, RIGHT_NEW))
SCORE = two(score=(SCORE_OLD, SCORE_NEW))
ANSWER = two(answer=(SAID_OLD, SAID_NEW), target=(TARGET, TARGET))
VALUE = two(value=(SCORE_OLD, SCORE_NEW), target=(SCORE_OLD + 0.2, SCORE_OLD + 0.2))
SETS = two(set=(sets(1), sets(2)), target=(sets(3), sets(3)))
RANKED = two(ranking=(rankings(1), rankings(2)), target=(rankings(3), rankings(3)))

for name, files in (
    ("correct", CORRECT),
    ("score", SCORE),
    ("answer", ANSWER),
    ("value", VALUE),
    ("set", SETS),
    ("ranking", RANKED),
):
    cli(f"outcomes.{name}", BOTH, files, pages=True)
    cli(
        f"outcomes.{name}_groups",
        f"{BOTH} --by task --cluster book",
        files,
        pages=name in ("correct", "value"),
    )
    cli(f"outcomes.{name}_pool", f"{BOTH} --pool task --equivalent 0.5", files)
    cli(
        f"outcomes.{name}_by_book",
        f"{BOTH} --by book --max-share-worse 40%",
        files,
        bare=True,
    )
    cli(f"outcomes.{name}_noise", "--noise old.jsonl new.jsonl", files)
cli("outcomes.answer_no_target", BOTH, two(answer=(SAID_OLD, SAID_NEW)), pages=True)
cli("outcomes.value_no_target", BOTH, two(value=(SCORE_OLD, SCORE_NEW)), pages=True)
cli("outcomes.set_no_target", BOTH, two(set=(sets(1), sets(2))))
cli("outcomes.ranking_no_target", BOTH, two(ranking=(rankings(1), rankings(2))))
cli(
    "outcomes.several",
    f"{BOTH} --by task --max-nfr 50%",
    two(
        correct=(RIGHT_OLD, RIGHT_NEW),
        score=(SCORE_OLD, SCORE_NEW),
        answer=(SAID_OLD, SAID_NEW),
        target=(TARGET, TARGET),
    ),
    pages=True,
)
cli(
    "outcomes.lone",
    BOTH,
    {
        "old.jsonl": items(correct=RIGHT_OLD, score=SCORE_OLD),
        "new.jsonl": items(correct=RIGHT_NEW, answer=SAID_NEW),
    },
)
cli(
    "outcomes.correct_and_score",
    BOTH,
    {
        "old.jsonl": items(correct=RIGHT_OLD),
        "new.jsonl": items(is_correct=RIGHT_NEW, correct=RIGHT_NEW),
    },
)
cli(
    "outcomes.unchanged",
    f"{BOTH} --max-nfr 1%",
    two(correct=(RIGHT_OLD, RIGHT_OLD)),
    pages=True,
)
cli("outcomes.all_right", BOTH, two(correct=(RIGHT_OLD * 0 + 1, RIGHT_OLD * 0 + 1)))
cli("outcomes.scores_equal", BOTH, two(score=(SCORE_OLD, SCORE_OLD)), pages=True)
cli("outcomes.few", BOTH, {name: of[:4] for name, of in CORRECT.items()}, pages=True)
cli("outcomes.one", BOTH, {name: of[:1] for name, of in SCORE.items()})
cli("outcomes.level", f"{BOTH} --level 0.8", SCORE)
for ending in ("csv", "tsv", "parquet", "feather", "json"):
    names = [f"old.{ending}", f"new.{ending}"]
    files = dict(zip(names, CORRECT.values()))
    cli(f"outcomes.form_{ending}", " ".join(names), files)
cli(
    "outcomes.form_npz",
    "old.npz new.npz",
    {
        "old.npz": {"ids": ITEMS, "score": SCORE_OLD},
        "new.npz": {"ids": ITEMS, "score": SCORE_NEW},
    },
)
cli(
    "outcomes.csv_lists",
    "old.csv new.csv",
    {
        name: "id;set;ranking\n"
        + "".join(
            f"{i};{','.join(a)};{' '.join(b)}\n"
            for i, (a, b) in enumerate(zip(sets(s), rankings(s)))
        )
        for name, s in (("old.csv", 1), ("new.csv", 2))
    },
)
SPELLED = [
    "['a', 'b']",
    "{'b','a'}",
    "('a','b')",
    "set(['b','a'])",
    "['a' 'b']",
    "[a,b]",
    "a;b",
    "frozenset({'a','b'})",
    "array(['a', 'b'], dtype=object)",
    "",
    "set()",
    "[1 2]",
    "[1.5\n 2]",
    "a|b",
    "[]",
    "{}",
    "['a' \"b\"]",
]
cli(
    "outcomes.lists_as_texts",
    BOTH,
    {
        "old.jsonl": [{"id": i, "set": of} for i, of in enumerate(SPELLED)],
        "new.jsonl": [{"id": i, "set": ["a", "b"]} for i in range(len(SPELLED))],
    },
)
cli(
    "outcomes.truths_as_texts",
    BOTH,
    {
        "old.jsonl": items(correct=np.where(RIGHT_OLD, "Yes", "no")),
        "new.jsonl": items(correct=np.where(RIGHT_NEW, "PASS", "failed")),
    },
)
for column in ("passed", "success", "resolved", "solved", "pass", "status"):
    cli(
        f"outcomes.column_{column}",
        BOTH,
        two(**{column: (RIGHT_OLD, RIGHT_NEW)}),
        bare=True,
    )
cli("outcomes.booleans", BOTH, two(correct=(RIGHT_OLD > 0, RIGHT_NEW > 0)))
cli(
    "outcomes.missing",
    BOTH,
    two(score=([None, *SCORE_OLD[1:]], [*SCORE_NEW[:-1], None])),
)
cli(
    "outcomes.missing_intersect",
    f"{BOTH} --on-missing intersect",
    two(score=([None, *SCORE_OLD[1:]], [*SCORE_NEW[:-1], None])),
)
cli(
    "outcomes.ids_intersect",
    f"{BOTH} --on-missing intersect",
    {
        "old.jsonl": items(score=SCORE_OLD)[:50],
        "new.jsonl": items(score=SCORE_NEW)[8:],
    },
)
cli(
    "outcomes.score_column",
    f"{BOTH} --score-column wer points",
    two(wer=(SCORE_OLD, SCORE_NEW), points=(RIGHT_OLD, RIGHT_NEW)),
    pages=True,
)
cli(
    "outcomes.lower",
    f"{BOTH} --score-column points --lower-is-better points --max-score-change 0.1",
    two(points=(SCORE_OLD, SCORE_NEW)),
    pages=True,
)
cli("outcomes.min_score_change", f"{BOTH} --min-score-change 0.01", SCORE, bare=True)
cli(
    "outcomes.min_score_change_holds", f"{BOTH} --min-score-change -1", SCORE, bare=True
)
cli("outcomes.max_score_change_wrong", f"{BOTH} --max-score-change 1", SCORE, bare=True)
cli(
    "outcomes.min_score_change_wrong",
    f"{BOTH} --score-column wer --min-score-change -1",
    two(wer=(SCORE_OLD, SCORE_NEW)),
    bare=True,
)
cli("outcomes.share_worse", f"{BOTH} --max-share-worse 10%", SCORE)
cli("outcomes.slice_nfr", f"{BOTH} --by task --max-slice-nfr 20%", CORRECT)
cli("outcomes.equivalent", f"{BOTH} --equivalent 0.3", CORRECT, pages=True)
cli(
    "outcomes.equivalent_gate",
    f"{BOTH} --gates g.toml",
    CORRECT | {"g.toml": 'equivalent = "5%"\nmax-nfr = 0.5'},
)
cli(
    "outcomes.interval_gates",
    f"{BOTH} --gates g.toml --by task",
    CORRECT
    | {
        "g.toml": 'on = "interval"\nmax-nfr = 0.15\nmin-accuracy-gain = 0\n[slices.task]\nmax-nfr = 0.2',
    },
    pages=True,
)
cli(
    "outcomes.waivers",
    f"{BOTH} --gates g.toml --by task",
    CORRECT
    | {
        "g.toml": "max-nfr = 0.1\n[slices]\nmax-nfr = 0.2\n"
        + "".join(
            f'[[waive]]\nid = "q{i}"\nreason = "known"\nuntil = 2999-01-01\n'
            for i in np.flatnonzero(RIGHT_OLD > RIGHT_NEW)[:3]
        )
        + '[[waive]]\nid = "q999"\nreason = "gone"\nuntil = 2999-01-01\n',
    },
    pages=True,
)
cli(
    "outcomes.waivers_of_nothing",
    f"{BOTH} --gates g.toml",
    two(answer=(SAID_OLD, SAID_NEW))
    | {
        "g.toml": 'max-share-changed = 0.9\n[[waive]]\nid = "q1"\nreason = "x"\nuntil = 2999-01-01\n',
    },
    bare=True,
)


def every_gate(path):
    """A gate on every quantity of outcomes."""
    from churn_compare import QUANTITIES

    names = [n for n, of in QUANTITIES.items() if of.outcomes]
    path.write_text(
        "".join(
            f"max-{n.replace('_', '-')} = 0.123\n"
            for n in names
            if n
            not in (
                "score_old",
                "score_new",
                "score_change",
                "runs_differ",
                "runs_agree",
            )
        )
    )


for name, files in (
    ("correct", CORRECT),
    ("score", SCORE),
    ("answer", ANSWER),
    ("value", VALUE),
    ("set", SETS),
):
    for quantity in (
        "churn",
        "nfr",
        "share-worse",
        "share-better",
        "share-changed",
        "mean-distance",
        "error-change",
        "share-reworded",
        "stability-new",
        "excess-churn",
    ):
        cli(
            f"outcomes.gate_{name}_{quantity}",
            f"{BOTH} --gates g.toml",
            files | {"g.toml": f"max-{quantity} = 0.2"},
            bare=True,
        )
for tolerance in ("0.05", "20%", "1"):
    cli(
        f"outcomes.tolerance_{tolerance.strip('%')}",
        f"{BOTH} --tolerance {tolerance}",
        VALUE,
    )
cli("outcomes.tolerance_scores", f"{BOTH} --tolerance 0.1", SCORE)
SPOKEN = {
    "old.jsonl": items(answer=[f"The  {w}." for w in SAID_OLD], target=TARGET),
    "new.jsonl": items(answer=[f"{w.upper()}" for w in SAID_NEW], target=TARGET),
}
for how in ("text", "squad", "none"):
    cli(
        f"outcomes.normalize_{how}",
        f"{BOTH} --normalize {how} --confirm never-right",
        SPOKEN,
    )
cli("outcomes.never_right", BOTH, SPOKEN)
cli(
    "outcomes.inputs",
    BOTH,
    {
        "old.jsonl": items(correct=RIGHT_OLD, input=[f"ask {i}" for i in ITEMS]),
        "new.jsonl": items(
            correct=RIGHT_NEW, input=[f"ask {i if i > 5 else -i}" for i in ITEMS]
        ),
    },
    pages=True,
)
PROMPTS = {
    "old.jsonl": items(correct=RIGHT_OLD, prompt=[f"ask {i}" for i in ITEMS]),
    "new.jsonl": items(correct=RIGHT_NEW, prompt=[f"please {i}" for i in ITEMS]),
}
cli("outcomes.inputs_all_changed", BOTH, PROMPTS)
cli("outcomes.inputs_confirmed", f"{BOTH} --confirm inputs", PROMPTS)
cli(
    "outcomes.no_ids",
    BOTH,
    {
        name: [{"score": r["score"], "task": r["task"]} for r in of]
        for name, of in SCORE.items()
    },
)
cli(
    "outcomes.no_ids_other_order",
    BOTH,
    {
        "old.jsonl": [
            {"score": r["score"], "name": r["id"]} for r in SCORE["old.jsonl"]
        ],
        "new.jsonl": [
            {"score": r["score"], "name": r["id"]} for r in SCORE["new.jsonl"][::-1]
        ],
    },
)
cli(
    "outcomes.no_ids_repeated_column",
    BOTH,
    {
        "old.jsonl": [{"score": i, "name": f"n{i % 12}"} for i in range(48)],
        "new.jsonl": [{"score": i, "name": f"n{(i + 5) % 12}"} for i in range(48)],
    },
)
cli(
    "outcomes.ids_count",
    BOTH,
    {
        "old.jsonl": [{"id": i, "score": i % 3} for i in range(30)],
        "new.jsonl": [{"id": i, "score": i % 4} for i in range(30)],
    },
)
cli(
    "outcomes.id_column",
    f"{BOTH} --id-column key --score-column reward",
    {
        "old.jsonl": [{"key": i, "reward": i % 3} for i in range(30)],
        "new.jsonl": [{"key": i, "reward": i % 4} for i in range(29, -1, -1)],
    },
)
cli(
    "outcomes.target_column",
    f"{BOTH} --label-column truth",
    two(answer=(SAID_OLD, SAID_NEW), truth=(TARGET, TARGET)),
)
cli(
    "outcomes.slices_file",
    f"{BOTH} --slices g.csv",
    CORRECT
    | {
        "g.csv": {"id": [f"q{i}" for i in ITEMS[:50]], "kind": TASK[:50]},
    },
)
cli(
    "outcomes.by_differs",
    f"{BOTH} --by task",
    {
        "old.jsonl": items(correct=RIGHT_OLD),
        "new.jsonl": [r | {"task": "sums"} for r in items(correct=RIGHT_NEW)],
    },
)
GRADES = np.array(["A", "B", "C", "F"])
GRADED = two(score=(GRADES[RNG.integers(0, 4, M)], GRADES[RNG.integers(0, 4, M)]))
cli("outcomes.grades", f"{BOTH} --grades A=1 B=0.5 C=.25 F=0", GRADED)
cli("outcomes.grades_missing", BOTH, GRADED)
cli("outcomes.grades_some", f"{BOTH} --grades A=1 B=0.5", GRADED)
cli("outcomes.grades_wrong", f"{BOTH} --grades A=1 B", GRADED)


def sampled(values, runs=3, seed=0, column="correct", run="run", **more):
    """Several runs of each item."""
    rng = np.random.default_rng(seed)
    rows = []
    for r in range(runs):
        for i in ITEMS:
            flip = rng.random() < 0.15
            value = values[i]
            if column == "correct":
                value = int(value) ^ int(flip)
            elif column == "score":
                value = round(float(value + 0.1 * rng.normal()), 3)
            elif flip:
                value = "red"
            row = {
                "id": f"q{i}",
                column: value,
                "task": str(TASK[i]),
                "book": int(BOOK[i]),
            }
            row |= {n: of[i] for n, of in more.items()}
            rows.append(row | ({run: r} if run else {}))
    return rows


for name, old, new, column, more in (
    ("correct", RIGHT_OLD, RIGHT_NEW, "correct", {}),
    ("score", SCORE_OLD, SCORE_NEW, "score", {}),
    (
        "answer",
        SAID_OLD.tolist(),
        SAID_NEW.tolist(),
        "answer",
        {"target": TARGET.tolist()},
    ),
):
    files = {
        "old.jsonl": sampled(old, 3, 1, column, **more),
        "new.jsonl": sampled(new, 3, 2, column, **more),
    }
    cli(f"samples.{name}", BOTH, files, pages=True)
    cli(
        f"samples.{name}_groups",
        f"{BOTH} --by task --cluster book --max-excess-churn 50%",
        files,
    )
    cli(
        f"samples.{name}_one_side",
        BOTH,
        files | {"old.jsonl": sampled(old, 1, 1, column, **more)},
    )
    cli(f"samples.{name}_noise", "--noise old.jsonl", files)
    cli(
        f"samples.{name}_noise_both",
        "--noise old.jsonl new.jsonl --cluster book",
        files,
        pages=name == "score",
    )
for run in ("seed", "epoch", "repeat", "sample"):
    cli(
        f"samples.column_{run}",
        BOTH,
        {
            "old.jsonl": sampled(RIGHT_OLD, 2, 1, run=run),
            "new.jsonl": sampled(RIGHT_NEW, 2, 2, run=run),
        },
        bare=True,
    )
cli(
    "samples.no_run_column",
    BOTH,
    {
        "old.jsonl": sampled(RIGHT_OLD, 2, 1, run=""),
        "new.jsonl": sampled(RIGHT_NEW, 4, 2, run=""),
    },
)
cli(
    "samples.two_and_two",
    BOTH,
    {"old.jsonl": sampled(RIGHT_OLD, 2, 1), "new.jsonl": sampled(RIGHT_NEW, 2, 2)},
)
cli(
    "samples.six",
    BOTH,
    {"old.jsonl": sampled(RIGHT_OLD, 6, 1), "new.jsonl": sampled(RIGHT_OLD, 6, 2)},
    pages=True,
)

# Runs of one version

CLASSES = {
    "a.csv": side(classes=OLD_CLASS, user=USER),
    "b.csv": side(classes=NEW_CLASS, user=USER),
}
cli("noise.classes", "--noise a.csv b.csv", CLASSES, pages=True)
cli("noise.classes_cluster", "--noise a.csv b.csv --cluster user", CLASSES)
cli("noise.scores", "--noise a.npz b.npz", {"a.npz": OWN, "b.npz": OTHER})
cli("noise.runs", "--noise a.npz", {"a.npz": OWN | {"logits": OLD_RUNS}})
cli(
    "noise.decisions",
    "--noise a.csv b.csv",
    {
        "a.csv": side(
            np.exp(OLD) / np.exp(OLD).sum(1, keepdims=True), "prob_", classes=OLD_CLASS
        ),
        "b.csv": side(
            np.exp(NEW) / np.exp(NEW).sum(1, keepdims=True), "prob_", classes=NEW_CLASS
        ),
    },
)
cli(
    "noise.no_ids",
    "--noise a.npy b.npy c.npy",
    {"a.npy": OLD_CLASS, "b.npy": NEW_CLASS, "c.npy": OLD_CLASS[::-1].copy()},
)
cli("noise.equal", "--noise a.npy b.npy", {"a.npy": OLD_CLASS, "b.npy": OLD_CLASS})
cli(
    "noise.some_ids",
    "--noise a.csv b.csv",
    {"a.csv": side(classes=OLD_CLASS)}
    | {"b.csv": {n: of[:90] for n, of in side(classes=NEW_CLASS).items()}},
)
cli(
    "noise.score_column",
    "--noise a.jsonl b.jsonl --score-column points",
    {
        "a.jsonl": items(points=SCORE_OLD),
        "b.jsonl": items(points=SCORE_NEW),
    },
)
cli("noise.stacked", "--noise a.csv", {"a.csv": stacked(OLD_RUNS, user=USER)})
cli(
    "noise.stacked_cluster",
    "--noise a.csv --cluster user",
    {"a.csv": stacked(OLD_RUNS, user=USER)},
)
for name, words, files in (
    ("one", "--noise a.csv", CLASSES),
    ("old", "a.csv --noise b.csv", CLASSES),
    ("limits", "--noise a.csv b.csv --max-churn 1%", CLASSES),
    ("by", "--noise a.csv b.csv --by user", CLASSES),
    ("labels", "--noise a.csv b.csv --labels a.csv", CLASSES),
    (
        "other_kinds",
        "--noise a.csv b.jsonl",
        CLASSES | {"b.jsonl": items(correct=RIGHT_OLD)},
    ),
    ("lengths", "--noise a.npy b.npy", {"a.npy": OLD_CLASS, "b.npy": NEW_CLASS[:50]}),
    ("ids_of_one", "--noise a.csv b.npy", CLASSES | {"b.npy": NEW_CLASS}),
    (
        "no_common",
        "--noise a.csv b.csv",
        {
            "a.csv": side(classes=OLD_CLASS),
            "b.csv": side(classes=OLD_CLASS, ids=IDS + 10_000),
        },
    ),
    (
        "inputs",
        "--noise a.jsonl b.jsonl",
        {
            "a.jsonl": items(correct=RIGHT_OLD, input=["x"] * M),
            "b.jsonl": items(correct=RIGHT_OLD, input=["y"] * M),
        },
    ),
    (
        "targets",
        "--noise a.jsonl b.jsonl",
        {
            "a.jsonl": items(answer=SAID_OLD, target=TARGET),
            "b.jsonl": items(answer=SAID_OLD, target=TARGET[::-1]),
        },
    ),
    ("no_outcomes", "--noise a.csv b.csv --score-column z", CLASSES),
):
    refused(f"noise_{name}", words, files)

# lm-evaluation-harness

DATE = "2026-01-0{}T00-00-00.000000"


def harness(right, filters=("none",), runs=1, say=None, **more):
    """Rows of samples as lm_eval writes them."""
    rows = []
    for name in filters:
        for run in range(runs):
            for i, r in enumerate(right):
                value = float(bool(r) != (run == 1 and i % 5 == 0))
                text = f"{name} {int(value)}" if say is None else say[i]
                row = {
                    "doc_id": i,
                    "doc": {"question": f"q {i}"},
                    "target": "1",
                    "arguments": [[f"ask {i}", {}]],
                    "resps": [[text, run]],
                    "filtered_resps": [text],
                    "filter": name,
                    "metrics": ["exact_match", "f1"],
                    "doc_hash": f"d{i}",
                    "prompt_hash": f"p{i}",
                    "target_hash": f"t{i}",
                    "exact_match": value,
                    "f1": round(value * 0.5 + i % 3 / 10, 3),
                }
                rows.append(
                    row | {n: of(i) if callable(of) else of for n, of in more.items()}
                )
    return rows


S_OLD, S_NEW = (
    f"o/samples_sums_{DATE.format(1)}.jsonl",
    f"n/samples_sums_{DATE.format(2)}.jsonl",
)
S = f"{S_OLD} {S_NEW}"
cli(
    "harness.plain",
    S,
    {S_OLD: harness(RIGHT_OLD), S_NEW: harness(RIGHT_NEW)},
    pages=True,
)
cli(
    "harness.filters",
    f"{S} --max-nfr 60%",
    {
        S_OLD: harness(RIGHT_OLD, ("strict-match", "flexible-extract")),
        S_NEW: harness(RIGHT_NEW, ("flexible-extract", "strict-match")),
    },
)
cli(
    "harness.runs",
    S,
    {S_OLD: harness(RIGHT_OLD, runs=2), S_NEW: harness(RIGHT_NEW, runs=2)},
)
cli(
    "harness.choices",
    S,
    {
        S_OLD: harness(
            RIGHT_OLD, filtered_resps=lambda i: [[-1.0 - i % 3, False], [-1.5, False]]
        ),
        S_NEW: harness(
            RIGHT_NEW, filtered_resps=lambda i: [[-1.0 - i % 2, False], [-1.5, False]]
        ),
    },
)
cli(
    "harness.perplexities",
    S,
    {
        name: harness(
            right,
            metrics=[
                "word_perplexity",
                "perplexity",
                "bits_per_byte",
                "inst",
                "parts",
                "bleu",
                "pairs",
            ],
            word_perplexity=lambda i, s=shift: [-100.0 - i + s, 40],
            perplexity=lambda i: -2.0 - i,
            bits_per_byte=lambda i, s=shift: [-90.0 - i + s, 200],
            inst=lambda i: [True, i > 9],
            parts=lambda i: {"a": i, "b": [1, 2]},
            bleu=["a", "b"],
            pairs=[1, 0],
        )
        for name, right, shift in ((S_OLD, RIGHT_OLD, 0), (S_NEW, RIGHT_NEW, 1))
    },
)
cli(
    "harness.no_metrics_list",
    S,
    {
        name: [
            {
                n: of
                for n, of in row.items()
                if n not in ("metrics", "prompt_hash", "doc_hash", "filter")
            }
            for row in harness(right)
        ]
        for name, right in ((S_OLD, RIGHT_OLD), (S_NEW, RIGHT_NEW))
    },
)
cli(
    "harness.arguments_by_name",
    S,
    {
        name: [
            {n: of for n, of in row.items() if n not in ("prompt_hash", "doc_hash")}
            | {"arguments": {"gen_args_0": {"arg_0": row["doc_id"]}}}
            for row in harness(right)
        ]
        for name, right in ((S_OLD, RIGHT_OLD), (S_NEW, RIGHT_NEW))
    },
)
cli(
    "harness.packed",
    f"{S_OLD}.gz {S_NEW}.gz",
    {f"{S_OLD}.gz": harness(RIGHT_OLD), f"{S_NEW}.gz": harness(RIGHT_NEW)},
)
FOLDERS = {
    f"o/model/samples_sums_{DATE.format(1)}.jsonl": harness(RIGHT_NEW),
    f"o/model/samples_sums_{DATE.format(2)}.jsonl": harness(RIGHT_OLD),
    f"o/model/samples_facts_{DATE.format(2)}.jsonl": harness(
        RIGHT_OLD[::-1], only=1.0, metrics=["exact_match", "only"]
    ),
    f"n/model/samples_sums_{DATE.format(3)}.jsonl": harness(RIGHT_NEW),
    f"n/model/samples_facts_{DATE.format(3)}.jsonl": harness(
        RIGHT_NEW[::-1], only=1.0, metrics=["exact_match", "only"]
    ),
}
cli("harness.folders", "o n", FOLDERS, pages=True)
cli("harness.folders_by_task", "o n --by task --pool task", FOLDERS)
cli(
    "harness.folders_directions",
    "o n",
    {
        f"o/m/samples_a_{DATE.format(1)}.jsonl": harness(RIGHT_OLD),
        f"n/m/samples_a_{DATE.format(2)}.jsonl": harness(RIGHT_NEW),
        f"n/m/results_{DATE.format(2)}.json": {
            "higher_is_better": {"a": {"f1": False, "exact_match": True}}
        },
    },
)
refused(
    "harness_directions_differ",
    "o n",
    {
        f"o/m/samples_a_{DATE.format(1)}.jsonl": harness(RIGHT_OLD),
        f"n/m/samples_a_{DATE.format(2)}.jsonl": harness(RIGHT_NEW),
        f"n/m/results_{DATE.format(2)}.json": {
            "higher_is_better": {"a": {"f1": False}}
        },
        f"o/m/results_{DATE.format(1)}.json": {"higher_is_better": {"a": {"f1": True}}},
    },
)
cli(
    "harness.folder_noise",
    "--noise o n",
    {
        f"o/m/samples_a_{DATE.format(1)}.jsonl": harness(RIGHT_OLD),
        f"n/m/samples_a_{DATE.format(2)}.jsonl": harness(RIGHT_NEW),
    },
)
refused(
    "harness_several_models",
    "o n",
    FOLDERS | {f"o/other/samples_sums_{DATE.format(1)}.jsonl": harness(RIGHT_NEW)},
)
refused(
    "harness_no_common_metric",
    "o n",
    FOLDERS
    | {
        f"o/model/samples_code_{DATE.format(1)}.jsonl": harness(
            RIGHT_NEW, metrics=["bleu"], bleu=0.5
        ),
    },
)
refused("harness_one_folder", "o", FOLDERS)
refused(
    "harness_two_prompts",
    S,
    {
        S_OLD: harness(RIGHT_OLD) + harness(RIGHT_OLD, prompt_hash="other"),
        S_NEW: harness(RIGHT_NEW),
    },
)
OLD_LOG = [
    {n: of for n, of in row.items() if n != "filter"} for row in harness([1, 0, 1])
]
refused("harness_two_filters_unnamed", S, {S_OLD: OLD_LOG + OLD_LOG, S_NEW: OLD_LOG})
refused(
    "harness_not_a_log",
    S,
    {S_OLD: [{"doc_id": 1, "filtered_resps": None, "metrics": 7}], S_NEW: harness([1])},
)
refused(
    "harness_average",
    "a.json b.json",
    {n: {"results": {}, "configs": {}, "versions": {}} for n in ("a.json", "b.json")},
)

# Inspect


def inspect(values, answers=None, epochs=1, scorers=("match",), **more):
    """A log of Inspect."""
    samples = []
    for epoch in range(1, epochs + 1):
        for i, value in enumerate(values):
            scores = {}
            for scorer in scorers:
                score = {"value": value}
                if answers is not None:
                    score["answer"] = str(answers[i])
                scores[scorer] = score
            asked = [
                {"id": f"{epoch} {id(values)}", "role": "user", "content": f"ask {i}"}
            ]
            samples.append(
                {
                    "id": i,
                    "epoch": epoch,
                    "input": asked,
                    "target": "x",
                    "scores": scores,
                }
            )
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "t"},
        "samples": samples,
    } | more


GRADE_OLD, GRADE_NEW = (
    np.array(["I", "C"])[RIGHT_OLD].tolist(),
    np.array(["I", "C"])[RIGHT_NEW].tolist(),
)
JSONS = "old.json new.json"
cli(
    "inspect.plain",
    JSONS,
    {
        "old.json": inspect(GRADE_OLD, SAID_OLD),
        "new.json": inspect(GRADE_NEW, SAID_NEW),
    },
    pages=True,
)
cli(
    "inspect.epochs",
    JSONS,
    {
        "old.json": inspect(GRADE_OLD, epochs=2),
        "new.json": inspect(GRADE_NEW, epochs=2),
    },
)
cli(
    "inspect.scorers",
    JSONS,
    {
        "old.json": inspect(GRADE_OLD, SAID_OLD, scorers=("a", "b")),
        "new.json": inspect(GRADE_NEW, SAID_NEW, scorers=("b", "a")),
    },
)
cli(
    "inspect.numbers",
    JSONS,
    {"old.json": inspect(SCORE_OLD.tolist()), "new.json": inspect(SCORE_NEW.tolist())},
)
cli(
    "inspect.partial",
    JSONS,
    {
        "old.json": inspect(["C", "P", "I", "N"] * 9),
        "new.json": inspect(["C", "I", "P", "N"] * 9),
    },
)
cli(
    "inspect.dicts",
    JSONS,
    {
        "old.json": inspect([{"a": "C", "b": i % 2, "c": [1]} for i in range(30)]),
        "new.json": inspect([{"a": "CI"[i % 2], "b": 1, "c": [1]} for i in range(30)]),
    },
)
cli(
    "inspect.errors",
    f"{JSONS} --on-missing intersect",
    {
        "old.json": inspect(GRADE_OLD, status="error"),
        "new.json": inspect(GRADE_NEW)
        | {
            "samples": [
                s
                if i
                else {
                    "id": 0,
                    "epoch": 1,
                    "input": s["input"],
                    "error": {"message": "no"},
                }
                for i, s in enumerate(inspect(GRADE_NEW)["samples"])
            ]
        },
    },
)
cli(
    "inspect.letters",
    JSONS,
    {"old.json": inspect(list("ABCF") * 9), "new.json": inspect(list("BACF") * 9)},
)
cli(
    "inspect.letters_graded",
    f"{JSONS} --grades A=1 B=0.5 C=.25 F=0 --min-score-change 0",
    {"old.json": inspect(list("ABCF") * 9), "new.json": inspect(list("BBCF") * 9)},
)
cli(
    "inspect.words",
    JSONS,
    {
        "old.json": inspect(["yes", "no", "TRUE", "False"] * 9),
        "new.json": inspect(["yes", "yes", "TRUE", "true"] * 9),
    },
)
V1 = {
    "version": 1,
    "status": "success",
    "eval": {},
    "results": {"scorer": {"name": "match"}},
}
cli(
    "inspect.version_1",
    JSONS,
    {
        name: V1
        | {
            "samples": [
                {"id": i, "epoch": 1, "input": "?", "score": {"value": g}}
                for i, g in enumerate(of)
            ]
        }
        for name, of in (("old.json", GRADE_OLD), ("new.json", GRADE_NEW))
    },
)
refused(
    "inspect_no_samples",
    JSONS,
    {"old.json": inspect([], samples=None), "new.json": inspect(GRADE_NEW)},
)
refused(
    "inspect_not_a_log",
    JSONS,
    {"old.json": '{"eval": {}, "samples": [7]}', "new.json": inspect(GRADE_NEW)},
)
refused(
    "inspect_deep",
    JSONS,
    {
        "old.json": '{"eval": {}, "samples": ' + "[" * 100_000 + "]" * 100_000,
        "new.json": "{}",
    },
)
refused(
    "inspect_cut",
    JSONS,
    {"old.json": json.dumps(inspect(GRADE_OLD))[:-20], "new.json": inspect(GRADE_NEW)},
)


def archive(log, **options):
    """The same log as an archive."""

    def write(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            if "header" not in options:
                file.writestr(
                    "header.json",
                    json.dumps({n: of for n, of in log.items() if n != "samples"}),
                )
            for i, sample in enumerate(log["samples"]):
                file.writestr(
                    f"samples/{i}.json",
                    sample if isinstance(sample, (str, bytes)) else json.dumps(sample),
                )

    return write


EVALS = "old.eval new.eval"
cli(
    "inspect.archive",
    EVALS,
    {
        "old.eval": archive(inspect(GRADE_OLD, SAID_OLD)),
        "new.eval": archive(inspect(GRADE_NEW, SAID_NEW)),
    },
)
cli(
    "inspect.archive_and_json",
    "old.eval new.json",
    {"old.eval": archive(inspect(GRADE_OLD)), "new.json": inspect(GRADE_NEW)},
)
cli(
    "inspect.archive_no_header",
    EVALS,
    {
        "old.eval": archive(inspect(GRADE_OLD), header=False),
        "new.eval": archive(inspect(GRADE_NEW)),
    },
)
cli(
    "inspect.folder",
    "old new",
    {
        "old/log.eval": archive(inspect(GRADE_OLD)),
        "new/log.eval": archive(inspect(GRADE_NEW)),
    },
)
refused(
    "inspect_two_in_a_folder",
    "old new",
    {
        "old/a.eval": archive(inspect(GRADE_OLD)),
        "old/b.eval": archive(inspect(GRADE_OLD)),
        "new/log.eval": archive(inspect(GRADE_NEW)),
    },
)


def zstandard(log, flipped=0):
    """An archive that is packed by Zstandard, perhaps damaged."""
    import pyarrow as pa

    entries, directory = b"", b""
    texts = [json.dumps(sample).encode() for sample in log["samples"]]
    for number, text in enumerate(texts):
        packed = pa.compress(text, codec="zstd", asbytes=True)
        name, sizes = f"samples/{number}.json".encode(), (len(packed), len(text))
        common = (
            0,
            93,
            0,
            0,
            zlib.crc32(text) ^ (flipped and number == 1),
            *sizes,
            len(name),
            0,
        )
        form = "<4sHHHHHHIIIHHHHHII"
        directory += (
            struct.pack(form, b"PK\x01\x02", 63, 63, *common, 0, 0, 0, 0, len(entries))
            + name
        )
        entries += (
            struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", 63, *common) + name + packed
        )
    end = (0, 0, len(texts), len(texts), len(directory), len(entries), 0)
    return entries + directory + struct.pack("<4sHHHHIIH", b"PK\x05\x06", *end)


cli(
    "inspect.zstandard",
    EVALS,
    {
        "old.eval": lambda p: p.write_bytes(zstandard(inspect(GRADE_OLD))),
        "new.eval": archive(inspect(GRADE_NEW)),
    },
)
refused(
    "inspect_zstandard_damaged",
    EVALS,
    {
        "old.eval": lambda p: p.write_bytes(zstandard(inspect(GRADE_OLD), 1)),
        "new.eval": archive(inspect(GRADE_NEW)),
    },
)
SAMPLE = {"id": 1, "input": "?", "scores": {"match": {"value": "C", "answer": "a"}}}


def changed(place, kind, value, *samples):
    """An archive with other bytes in its directory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", "{}")
        file.writestr("samples/0.json", json.dumps(SAMPLE))
        for number, sample in enumerate(samples, 1):
            file.writestr(f"samples/{number}.json", sample)
    content = bytearray(packed.getvalue())
    entry = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 4)
    if kind:
        struct.pack_into(kind, content, entry + place, value)
    return bytes(content)


for name, content in (
    ("size", changed(24, "<I", 10)),
    ("place", changed(42, "<I", 2**31)),
    ("encrypted", changed(8, "<H", 1)),
    ("zstd", changed(10, "<H", 93)),
    ("method", changed(10, "<H", 77)),
    ("no_id", changed(0, "", 0, '{"input": 1}')),
    (
        "deep",
        changed(0, "", 0, '{"id": 2, "input": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    ),
    ("latin", changed(0, "", 0, b'{"id": "\xe9"}')),
    ("no_zip", b"hello"),
    ("cut", changed(0, "", 0)[:60]),
):
    refused(
        f"inspect_archive_{name}",
        EVALS,
        {"old.eval": content, "new.eval": archive(inspect(GRADE_NEW))},
    )

# Other tools


def gym(right):
    return [
        {
            "_ng_task_index": i,
            "_ng_rollout_index": r,
            "reward": float(bool(x) ^ (r == 1 and i % 4 == 0)),
            "responses_create_params": {"input": f"ask {i}"},
        }
        for i, x in enumerate(right)
        for r in range(2)
    ]


def openai(right):
    rows = [{"spec": {"eval_name": "e"}}]
    for i, x in enumerate(right):
        event = {
            "sample_id": f"e.{i}",
            "type": "sampling",
            "data": {"prompt": f"ask {i}"},
        }
        rows += [
            event,
            event
            | {
                "type": "match",
                "data": {"correct": bool(x), "picked": f"x{int(x)}", "expected": "x1"},
            },
        ]
        rows += [
            event | {"type": "metrics", "data": {"points": i % 3}},
            {"type": "other", "data": [1]},
        ]
    return [*rows, {"type": "report", "data": {"accuracy": 1}}]


def lighteval(right, old=False):
    rows = []
    for i, x in enumerate(right):
        row = {
            "doc": {"id": str(i), "query": f"ask {i}"},
            "metric": {"em": x, "acc": float(x)},
            "model_response": {"text": [f"x{x}"]},
        }
        rows.append({f"__{n}__": of for n, of in row.items()} if old else row)
    return rows


cli(
    "tool.gym",
    BOTH,
    {"old.jsonl": gym(RIGHT_OLD), "new.jsonl": gym(RIGHT_NEW)},
    pages=True,
)
cli(
    "tool.openai",
    BOTH,
    {"old.jsonl": openai(RIGHT_OLD), "new.jsonl": openai(RIGHT_NEW)},
)
refused(
    "tool_openai_twice",
    BOTH,
    {
        "old.jsonl": openai(RIGHT_OLD) + openai(RIGHT_OLD)[1:],
        "new.jsonl": openai(RIGHT_NEW),
    },
)
refused(
    "tool_openai_empty",
    BOTH,
    {"old.jsonl": [{"spec": {}}], "new.jsonl": openai(RIGHT_NEW)},
)
refused(
    "tool_gym_not",
    BOTH,
    {
        "old.jsonl": [
            {
                "_ng_task_index": 1,
                "_ng_rollout_index": 0,
                "reward": 1,
                "responses_create_params": 7,
            }
        ],
        "new.jsonl": gym([1]),
    },
)
for old in (False, True):
    cli(
        f"tool.lighteval_{'old' if old else 'new'}",
        "old.parquet new.parquet",
        {
            "old.parquet": lighteval(RIGHT_OLD, old),
            "new.parquet": lighteval(RIGHT_NEW, old),
        },
    )
TOOLS = {
    "own": {"format": 1, "passed": True, "verdict": []},
    "shards": {"format": "x", "shards": 1},
    "lighteval": {"config_general": {}, "results": {}},
    "swebench": {"resolved_ids": []},
    "helm": {"request_states": [], "adapter_spec": {}},
    "helm_2": [{"instance_id": 1, "stats": []}],
    "helm_3": [{"name": 1, "count": 1, "sum": 1, "sum_squared": 1}],
    "promptfoo": {"evalId": 1, "results": {}},
    "promptfoo_2": {"results": [], "stats": {}, "version": 2},
    "mlflow": {"info": {}, "data": {}},
    "wandb": {"_step": 1, "_runtime": 1},
    "wandb_2": {"_wandb": {}},
    "swe_patches": [{"instance_id": 1, "model_patch": ""}],
    "deepeval": {"testCases": []},
    "evalplus": {"eval": {}, "hash": 1},
    "mteb": {"mteb_version": 1, "scores": {}},
    "azure": {"rows": [], "metrics": {}},
    "trainer": {"log_history": []},
    "pytest": {"tests": [], "exitcode": 1},
    "coco": [{"image_id": 1, "category_id": 1, "bbox": []}],
}
for name, content in TOOLS.items():
    refused(
        f"tool_{name}", "old.json new.json", {"old.json": content, "new.json": content}
    )
refused(
    "tool_lines",
    BOTH,
    {n: [{"instance_id": 1, "model_patch": ""}] for n in ("old.jsonl", "new.jsonl")},
)

# What cannot be compared

LETTERS = list("abcdefghijklm")
for name, old, new, words in (
    ("no_columns", {"x": [1]}, {"x": [1]}, "--score-column y"),
    ("no_outcome_new", {"correct": [1]}, {"x": [1]}, ""),
    ("truth", {"correct": [1, 2]}, {"correct": [1, 0]}, ""),
    ("truth_text", {"correct": ["yes", "maybe"]}, {"correct": ["yes", "no"]}, ""),
    ("grades", {"score": ["a"]}, {"score": [1]}, ""),
    ("texts", {"score": LETTERS}, {"score": LETTERS}, ""),
    ("underscore", {"score": ["1", "1_0"]}, {"score": [1, 2]}, ""),
    ("nan", {"score": [float("nan"), 1]}, {"score": [1.0, 2]}, ""),
    ("infinite", {"score": [float("inf")]}, {"score": [1.0]}, ""),
    ("huge", {"score": [1e308]}, {"score": [1.0]}, ""),
    ("none_common", {"score": [1]}, {"correct": [1], "answer": [2]}, ""),
    ("kinds", {"value": [1.5]}, {"answer": ["a"]}, ""),
    ("other_ids", {"id": [1], "score": [1]}, {"id": [2], "score": [1]}, ""),
    (
        "other_ids_intersect",
        {"id": [1], "score": [1]},
        {"id": [2], "score": [1]},
        "--on-missing intersect",
    ),
    ("spaces", {"id": ["a"], "score": [1]}, {"id": ["a "], "score": [1]}, ""),
    ("ids_of_one", {"id": [1], "score": [1]}, {"score": [1]}, ""),
    ("lengths", {"score": [1, 2]}, {"score": [1]}, ""),
    ("rows_per_run", {"id": [1, 1, 2], "score": [1, 2, 3]}, {"score": [1]}, ""),
    ("run_without_id", {"run": [1, 2], "score": [1, 2]}, {"score": [1]}, ""),
    (
        "run_twice",
        {"id": [1, 1], "run": [0, 0], "score": [1, 2]},
        {"id": [1, 1], "run": [0, 1], "score": [1, 2]},
        "",
    ),
    (
        "task_differs",
        {"id": [0, 1, 0, 1], "correct": [1, 0, 1, 1], "task": list("aabb")},
        {"id": [0, 1], "correct": [1, 0]},
        "",
    ),
    (
        "prompt_differs",
        {"id": [0, 1, 0, 1], "correct": [1, 0, 1, 1], "prompt": list("aabb")},
        {"id": [0, 1], "correct": [1, 0]},
        "",
    ),
    (
        "targets_differ",
        {"id": [1, 2], "answer": ["a", "b"], "target": ["a", "b"]},
        {"id": [1, 2], "answer": ["a", "b"], "target": ["a", "c"]},
        "",
    ),
    (
        "targets_missing",
        {"id": [1, 2], "answer": ["a", "b"], "target": ["a", None]},
        {"id": [1, 2], "answer": ["a", "b"]},
        "",
    ),
    ("value_text", {"value": ["a", "b"]}, {"value": [1, 2]}, ""),
    ("long_list", {"set": [list(range(1001))]}, {"set": [[1]]}, ""),
    ("by", {"score": [1, 2]}, {"score": [1, 3]}, "--by colour"),
    ("pool", {"score": [1, 2], "t": [1, 2]}, {"score": [1, 3]}, "--pool colour"),
    ("cluster", {"score": [1, 2]}, {"score": [1, 3]}, "--cluster colour"),
    ("one_cluster", {"score": [1, 2], "u": [1, 1]}, {"score": [1, 3]}, "--cluster u"),
    ("lower", {"score": [1, 2]}, {"score": [1, 3]}, "--lower-is-better wre"),
    ("tolerance", {"value": [1, 2]}, {"value": [1, 3]}, "--tolerance x"),
    ("tolerance_negative", {"value": [1, 2]}, {"value": [1, 3]}, "--tolerance -1"),
    ("margin", {"score": [1, 2]}, {"score": [1, 3]}, "--equivalent -1"),
    ("level", {"score": [1, 2]}, {"score": [1, 3]}, "--level 0.2"),
    ("labels", {"score": [1, 2]}, {"score": [1, 3]}, "--labels old.jsonl"),
    ("kind", {"score": [1, 2]}, {"score": [1, 3]}, "--kind classes"),
    ("strip", {"score": [1, 2]}, {"score": [1, 3]}, "--strip"),
    (
        "class_map",
        {"score": [1, 2]},
        {"score": [1, 3]},
        "--class-map identity --score-column score",
    ),
    ("slice_gate", {"score": [1, 2]}, {"score": [1, 3]}, "--max-slice-nfr 1%"),
    ("excess", {"score": [1, 2]}, {"score": [1, 3]}, "--max-excess-churn 1%"),
    ("slices_rows", {"score": [1, 2]}, {"score": [1, 3]}, "--slices g.csv"),
    (
        "slices_none",
        {"id": [1, 2], "score": [1, 2]},
        {"id": [1, 2], "score": [1, 3]},
        "--slices h.csv",
    ),
    ("surrogate", {"id": [1], "answer": ["\ud800"]}, {"id": [1], "answer": ["a"]}, ""),
    ("empty_rows", {"score": []}, {"score": [1]}, ""),
    ("correct_lists", {"correct": [[1], [0]]}, {"correct": [1, 0]}, ""),
    ("confirm", {"score": [1, 2]}, {"score": [1, 3]}, "--confirm everything"),
):
    refused(
        f"outcomes_{name}",
        f"{BOTH} {words}",
        {
            "old.jsonl": old,
            "new.jsonl": new,
            "g.csv": "kind\na\nb\nc\n",
            "h.csv": "id,kind\n8,a\n9,b\n",
        },
    )

"""Flips by the labels of changed examples alone: exact, of a part, at any time."""

import csv
import dataclasses
import itertools
import json
import pathlib
import shlex
import shutil

import numpy as np
import pytest
from scipy import stats

from churn_compare import compare, compare_outcomes, label_queue, labelling
from churn_compare.cli import main
from churn_compare.documents import Records, csv_text, plain_text
from churn_compare.gates import GateError
from churn_compare.labelling import confidence_sequence, ends_of, more_labels
from churn_compare.result import Sampled, Stratum
from churn_compare.sizing import size
from tests.cases import csv_file, fails

FLIPS = ("negative_flip_rate", "positive_flip_rate", "accuracy_gain")
N = 1200


def versions(runs=1, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, N)
    right = rng.random(N) < 0.8
    old = np.where(right, labels, (labels + 1) % 3)[None].repeat(runs, axis=0)
    new = np.where(rng.random((runs, N)) < 0.06, rng.integers(0, 3, (runs, N)), old)
    ids = np.arange(N) + 7
    slices = np.array(["ab"[i % 2] for i in range(N)])
    return labels, *({"id": ids, "predictions": of} for of in (old, new)), slices


def files(folder, old, new, **columns):
    """The predictions of both versions as files."""
    return [
        csv_file(folder / name, id=of["id"], prediction=of["predictions"][0], **columns)
        for name, of in (("old.csv", old), ("new.csv", new))
    ]


def known(rows, labels, count=N):
    """Rows of a queue, of which the first have a label."""
    first = [row | {"label": labels[int(row["id"]) - 7]} for row in rows[:count]]
    return [*first, *rows[count:]]


def rewritten(path, change, count=N):
    """A queue with some columns of its first rows changed."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows[:count]:
        row |= change(row)
    path.write_text(csv_text(Records(list(rows[0]), rows)))
    return path


@pytest.mark.parametrize("runs", [1, 3])
def test_labels_of_all_that_changes_tell_as_much_as_labels_of_all(runs, tmp_path):
    labels, old, new, slices = versions(runs)
    shared = {"slices": {"id": old["id"], "half": slices}, "resamples": 100}
    whole = compare(old, new, labels=dict(zip(old["id"], labels)), **shared)
    queue = label_queue(old, new)
    assert len(queue.rows) == queue.changed < N / 4
    path = tmp_path / "q.csv"
    dataclasses.replace(queue, rows=known(queue.rows, labels)).save(path)
    few = compare(old, new, labels=path, **shared)
    assert {name: few[name] for name in FLIPS} == {name: whole[name] for name in FLIPS}
    for name in ("p", "detectable", "within"):
        assert getattr(few, name) == getattr(whole, name)
    assert "accuracy_old" not in few.quantities and few.sampled is None
    for a, b in zip(few.groupings["half"], whole.groupings["half"], strict=True):
        assert a["negative_flip_rate"] == b["negative_flip_rate"] and a.p == b.p
    assert {r.id for r in few.regressions} == {r.id for r in whole.regressions}
    # A normal file with the labels of the changed examples alone says the same.
    changed = {int(row["id"]): int(labels[int(row["id"]) - 7]) for row in queue.rows}
    assert compare(old, new, labels=changed, **shared)[FLIPS[0]] == whole[FLIPS[0]]
    del changed[int(queue.rows[0]["id"])]
    said = "1 of the .* that change have no"
    fails(said, compare, old, new, labels=changed, **shared)
    rewritten(path, lambda row: {"better": "old"})  # though labels say new of some
    fails(r"label and better contradict.*: \d+, ", compare, old, new, labels=path)
    # A queue of all examples, with all labels, is a file of labels.
    new["predictions"] = (old["predictions"] + 1) % 3
    shared["confirm"] = ["below-chance"]
    rows = known(label_queue(old, new).rows, labels)
    whole = compare(old, new, labels=dict(zip(old["id"], labels)), **shared)
    assert compare(old, new, labels=rows, **shared).quantities == whole.quantities


def flips_of(labels, old, new, inside):
    """NFR, PFR and gain of some examples, by hand."""
    was, now = (side["predictions"][0][inside] == labels[inside] for side in (old, new))
    lost, gained = np.mean(was & ~now), np.mean(now & ~was)
    return lost, gained, gained - lost


def test_a_part_holds_the_numbers_of_all_and_of_every_slice():
    labels, old, new, old["half"] = versions()
    old["third"] = np.array(["xyz"[i % 3] for i in range(N)])
    held = np.zeros((2, 3))  # of all, and of two slices
    for seed in range(60):
        # Without --by in random order; else a part of the queue, so that the strata of
        # what is not in it follow from the column.
        by = (None, "half", "third")[seed % 3]
        wanted, any_time = ["half", *([by] if by == "third" else [])], by is None
        queue = label_queue(old, new, seed=seed, by=by, budget=None if any_time else 36)
        rows = known(queue.rows, labels, 30)
        options = {"labels": rows, "by": wanted, "resamples": 100}
        found = compare(old, new, **options)
        halves = found.groupings["half"]
        parts = [(half, old["half"] == half.name) for half in halves]
        parts.append((found, np.ones(N, bool)))
        for of, inside in parts:
            truth, these = flips_of(labels, old, new, inside), of.sampled.these
            assert of.sampled.examples == inside.sum() == of.examples
            for k, name in enumerate(FLIPS):
                low, high = these[name].low, these[name].high
                within = low - 1e-12 <= truth[k] <= high + 1e-12
                held[int(of is not found), k] += within
                assert of[name].low <= low <= high <= of[name].high
        strata = found.sampled.strata
        labelled = {None: [30], "half": [15, 15], "third": [10, 10, 10]}[by]
        assert [stratum.labelled for stratum in strata] == labelled
        assert sum(s.changed for s in strata) == queue.changed
        these = found.sampled.these
        assert all(found[name].value == these[name].value for name in FLIPS)
        if seed == 0:
            both = found, compare(old, new, **options, any_time=True)
            ends = [of.groups[1].sampled.these for of in both]
            now, always = (sum(of[n].high - of[n].low for n in FLIPS) for of in ends)
            assert now < always
    said = r"name it in --by .*x, y, z"  # of the last queue, which is by third
    fails(said, compare, old, new, labels=rows, by=["half"])
    # Of 60 and 120 with 95 %: below in 0.4 and 0.01 %.
    assert np.all(held >= [[52], [103]])


def test_slices_with_all_labels_are_exact_and_those_without_any_are_open():
    labels, old, new, _ = versions()
    changed = old["predictions"][0] != new["predictions"][0]
    old["part"] = np.where(np.cumsum(changed) <= 8, "a", np.where(changed, "b", "c"))
    rows = label_queue(old, new).rows
    rows = sorted(rows, key=lambda row: old["part"][int(row["id"]) - 7] != "a")
    given = {"labels": known(rows, labels, 8), "by": ["part"], "resamples": 100}
    gates = {"max_slice_nfr": "80%", "min_slice_accuracy_gain": "-90%"}
    found = compare(old, new, gates=gates, **given)
    a, b, c = (group.sampled.these for group in found.groups)
    truth = flips_of(labels, old, new, old["part"] == "a")
    for name, true in zip(FLIPS, truth, strict=True):
        assert a[name].low == a[name].value == a[name].high == pytest.approx(true)
        assert c[name].low == c[name].value == c[name].high == 0
        assert np.isnan(b[name].value) and b[name].high == 1
    assert (b[FLIPS[0]].low, b[FLIPS[2]].low) == (0, -1)
    assert [gate.state for gate in found.gates] == ["inconclusive"] * 2
    assert "part b" in found.gates[0].line and found.gates[0].where == "part b"
    assert "8 of 8" in plain_text(found.terminal(full=True))
    for any_time in (False, True):  # new examples of a slice without a change may flip
        c = compare(old, new, **given, any_time=any_time).groups[2]
        one = 1 / c.examples
        assert c[FLIPS[2]].low < -one < c[FLIPS[2]].value == 0 < one < c[FLIPS[2]].high
    gates = {"max_slice_nfr": "100%", "min_slice_accuracy_gain": "-99.9%"}
    found = compare(old, new, gates=gates, **given)
    assert [gate.state for gate in found.gates] == ["pass", "inconclusive"]


def test_a_queue_of_files_without_ids_is_of_their_rows():
    labels, *sides, _ = versions()
    sides = [{"prediction": side["predictions"][0]} for side in sides]
    rows = label_queue(*sides).rows
    rows = [row | {"label": labels[int(row["id"])]} for row in rows]
    few, whole = (compare(*sides, labels=of, resamples=100) for of in (rows, labels))
    assert {name: few[name] for name in FLIPS} == {name: whole[name] for name in FLIPS}


def test_a_queue_of_another_update_or_of_preferred_runs_is_refused():
    _, old, new, _ = versions(runs=2)
    rows = [row | {"better": "old"} for row in label_queue(old, new).rows]
    fails("needs one run of each version", compare, old, new, labels=rows)
    fails("labels of all examples, or of none: leave", size, old, new, labels=rows)
    bare = [{n: of for n, of in row.items() if n != "stratum"} for row in rows]
    fails("column stratum of the queue is gone", compare, old, new, labels=bare)
    changes = np.roll(new["predictions"] - old["predictions"], 1)  # as many
    other = new | {"predictions": (old["predictions"] + changes) % 3}
    fails(r"and \d+ rows of the queue are not", compare, old, other, labels=rows)
    for side in (old, new):
        side |= {"id": [*side["id"]] * 2}
        side["answer"] = side.pop("predictions").astype(str).ravel()
    fails("needs one run of each version", label_queue, old, new)
    judged = [{"correct": of} for of in ([1, 0, 1], [0, 1, 1])]
    fails("correct is judged already; no queue is needed", label_queue, *judged)
    fails("needs one run of each version", compare_outcomes, old, new, labels=rows)


def test_labels_of_a_queue_are_classes_that_are_predicted():
    _, old, new, _ = versions()
    rows = [row | {"label": "7"} for row in label_queue(old, new).rows]
    few, whole = rows[:9] + [row | {"label": ""} for row in rows[9:]], {"labels": rows}
    compare(old, new, labels=few, resamples=100)
    said = r"neither version predicts a class of .* labels \(7\): .*--confirm below-ch"
    fails(said, compare, old, new, **whole)
    found = compare(old, new, **whole, confirm=["below-chance"], resamples=100)
    assert found[FLIPS[0]].value == 0


def test_a_preference_is_between_the_answers_in_the_queue(tmp_path):
    _, old, new, _ = versions()
    path = tmp_path / "q.csv"
    label_queue(old, new).save(path)
    changed = np.flatnonzero(old["predictions"][0] != new["predictions"][0])
    other = new | {"predictions": new["predictions"].copy()}
    of, was = other["predictions"][0], old["predictions"][0]
    of[changed] = 3 - of[changed] - was[changed]  # the third class
    rewritten(path, lambda row: {"better": "old", "new": f" {row['new']}.0 "}, 20)
    found = compare(old, new, labels=path, resamples=100)
    assert found["negative_flip_rate"].value == found["churn"].value
    for sides in ((new, old), (old, other)):
        said = "other answers than these files in 20 of 20 rows with a value in better"
        fails(rf"{said}.*, in the same order$", compare, *sides, labels=path)
    rows = [dict(row) for row in csv.DictReader(path.read_text().splitlines())]
    for row in rows:
        del row["new"]
    fails("keep the columns old and new", compare, old, new, labels=rows)
    answers = [
        {"id": side["id"], "answer": side["predictions"][0].astype(str)}
        for side in (old, new)
    ]
    rows = [row | {"better": "new"} for row in label_queue(*answers).rows]
    compare_outcomes(*answers, labels=rows)
    fails("other answers", compare_outcomes, *answers[::-1], labels=rows)


def test_a_part_by_hand():
    # 3 of 6 changed examples, of 100: one gets worse, one better.
    stratum = Stratum("", 6, 3, 1 / 3, 1 / 3, (1 / 3, 1 / 3, 2 / 3))
    sampled = Sampled(100, (stratum,), 0.95)
    found = ends_of(sampled, "negative_flip_rate")
    assert found.value == pytest.approx(0.02)
    n, z = 3 * (6 - 1) / (6 - 3), 1.959964  # as many draws with replacement
    centre, p = (1 / 3 + z**2 / n / 2) / (1 + z**2 / n), 1 / 3
    half = z * np.sqrt(p * (1 - p) / n + z**2 / n**2 / 4) / (1 + z**2 / n)
    assert found.low == pytest.approx(0.06 * (centre - half), rel=1e-5)
    assert found.high == pytest.approx(0.06 * (centre + half), rel=1e-5)
    gain = ends_of(sampled, "accuracy_gain")
    assert gain.value == 0 and gain.low == pytest.approx(-gain.high)
    every = ends_of(sampled, "negative_flip_rate", 2.0)
    assert every.low == every.value == every.high
    wide = ends_of(sampled, "negative_flip_rate", 2.0, population=True)
    assert wide.low < 0.02 < wide.high and wide.low > 0
    assert 0 < more_labels(sampled, "negative_flip_rate", 0.05) <= 3
    stratum = dataclasses.replace(stratum, changed=60, labelled=12)
    sampled = Sampled(1000, (stratum,), 0.95)
    for limit in (0.012, 0.028):
        ends = (ends_of(sampled, FLIPS[0], (12 + more) / 12) for more in range(1, 48))
        enough = [not found.low <= limit <= found.high for found in ends]
        few = more_labels(sampled, FLIPS[0], limit)
        assert few == 1 + enough.index(True)
        always = dataclasses.replace(sampled, any_time=True)
        assert few < more_labels(always, FLIPS[0], limit) <= 48  # as it is wider


@pytest.mark.parametrize(
    "strata",  # changed, of these worse, labels
    [
        ((1000, 50, 20), (40, 10, 20)),
        ((100, 30, 20), (100, 30, 2)),
        ((100, 10, 10), (2, 1, 1)),
    ],
)
def test_strata_are_covered_by_exact_enumeration(strata):
    chances = [stats.hypergeom(*of).pmf(np.arange(of[2] + 1)) for of in strata]
    true, held = sum(worse for _, worse, _ in strata) / 10_000, 0.0
    for hits in itertools.product(*(range(n + 1) for *_, n in strata)):
        shares = [hit / n for hit, (*_, n) in zip(hits, strata, strict=True)]
        given = [
            Stratum("", changed, n, share, 0.0, (share, 0.0, share))
            for share, (changed, _, n) in zip(shares, strata, strict=True)
        ]
        found = ends_of(Sampled(10_000, tuple(given), 0.95), FLIPS[0])
        most = sum(changed for changed, *_ in strata) / 10_000
        assert 0 <= found.low <= found.value <= found.high <= most
        if found.low <= true <= found.high:
            held += np.prod([of[hit] for of, hit in zip(chances, hits, strict=True)])
    assert held > 0.925


@pytest.mark.parametrize(("size", "share"), [(60, 0.3), (200, 0.1), (200, 0.9)])
def test_at_any_time_the_mean_is_inside(size, share):
    rng, missed, trials = np.random.default_rng(0), 0, 150
    for _ in range(trials):
        values = (rng.random(size) < share).astype(float)
        low, high = confidence_sequence(values[: size // 2], size, 0.95)
        missed += not low - 1e-12 <= values.mean() <= high + 1e-12
    assert confidence_sequence(values, size, 0.95) == (values.mean(),) * 2
    assert missed <= 0.05 * trials + 5
    ends = [confidence_sequence(values[:n], size, 0.95) for n in (5, 20, size // 2)]
    assert ends[0][0] <= ends[1][0] <= ends[2][0] <= ends[2][1] <= ends[1][1]


def test_where_one_label_is_missing_both_its_values_are_possible(monkeypatch):
    monkeypatch.setattr(labelling, "_GRID", 200)
    values = np.zeros(499)
    values[:3] = 1  # the means 3/500 and 4/500 lie within one step of the grid
    ends = confidence_sequence(values, 500, 0.95)
    assert ends == pytest.approx((3 / 500, 4 / 500))


def test_a_queue_is_drawn_in_random_order_and_hides_what_is_new(tmp_path, monkeypatch):
    _, old, new, slices = versions()
    old["half"], old["text"] = slices, [f"text {i}" for i in range(N)]
    orders = [[r["id"] for r in label_queue(old, new, seed=s).rows] for s in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) != orders[2]
    queue = label_queue(old, new, budget=20, by="half", blind=True)
    strata = [row["stratum"] for row in queue.rows]
    assert strata.count("a") == strata.count("b") == 10
    assert queue.rows[0]["text"] == f"text {int(queue.rows[0]['id']) - 7}"
    assert set(queue.key.values()) == {"old", "new"}
    queue, key = queue.save(tmp_path / "q.csv")
    assert "old" not in queue.read_text() and key.name == "q.key.csv"
    path = tmp_path / "q.csv"
    of_id = dict(line.split(",") for line in key.read_text().splitlines())
    rewritten(path, lambda row: {"better": "A" if of_id[row["id"]] == "old" else "b"})
    found = compare(old, new, labels=path, resamples=100)
    assert found.sampled.preferred and found["positive_flip_rate"].value == 0
    assert found["negative_flip_rate"].value == pytest.approx(found["churn"].value)
    old["text"] = [[{"role": "user", "content": f"é {i}"}] for i in range(N)]
    first = label_queue(old, new, budget=1).rows[0]
    assert json.loads(first["text"])[0]["content"] == f"é {int(first['id']) - 7}"
    assert "é" in first["text"]
    label_queue(old, new, seed=2, blind=True).save(tmp_path / "other.csv")
    own = key.read_text()
    key.write_text((tmp_path / "other.key.csv").read_text())  # of the same examples
    fails(r"shows other answers .* in \d+ of 20 rows", compare, old, new, labels=path)
    key.write_text(own)
    lines = key.read_text().splitlines(keepends=True)
    for text in ("".join(lines[:-1]), "".join(lines).replace(",old", ",v1")):
        key.write_text(text)
        fails(r"q\.key\.csv does not say", compare, old, new, labels=path)
    fails("take no argument budgets", label_queue, old, new, budgets=20, of=TypeError)
    again = label_queue(old, new, budget=20, by="half", blind=True, seed=1)
    with monkeypatch.context() as broken:  # between the queue and its key
        broken.setattr("churn_compare.queue.write_file", lambda *_: 1 / 0)
        fails("division by zero", again.save, path, of=ZeroDivisionError)
    fails(r"q\.key\.csv.* is not beside it", compare, old, new, labels=path)


def test_a_queue_that_makes_no_sense_is_refused():
    _, old, new, old["half"] = versions()
    for options, says in (
        ({"budget": 1, "by": "half"}, "less than one example of each"),
        ({"budget": -3}, "-3 is less than one example$"),
        ({"by": "region"}, "there is no column 'region'"),
    ):
        fails(says, label_queue, old, new, **options)
    fails("nothing to label", label_queue, old, dict(old))


def test_the_command_draws_and_decides_with_a_part(tmp_path, capsys):
    labels, old, new, _ = versions()
    sides = [*files(tmp_path, old, new)]
    out = tmp_path / "q.csv"
    assert main(["label", *sides, "--out", str(out), "--budget", "40"]) == 0
    assert "40 of them, in random order" in capsys.readouterr().out
    queue = label_queue(*sides, budget=40)
    dataclasses.replace(queue, rows=known(queue.rows, labels, 12)).save(out)
    truth = compare(old, new, labels=labels, resamples=100)[FLIPS[0]].value
    assert main([*sides, "--labels", str(out), "--max-nfr", f"{truth + 0.002}"]) == 4
    said = " ".join(capsys.readouterr().out.split())
    assert "more labels would decide" in said and ", 12 have labels." in said
    page = tmp_path / "a.json"
    words = ["--any-time", "--json", str(page), "--max-nfr", "50%"]
    assert main([*sides, "--labels", str(out), *words]) == 0
    found = json.loads(page.read_text())
    narrow = compare(*sides, labels=out, resamples=100).sampled.these[FLIPS[0]]
    wide = found["sampled"]["these"][FLIPS[0]]
    assert wide["low"] <= narrow.low and wide["high"] >= narrow.high
    assert main([*sides, "--labels", str(out), "--max-ece-new", "1"]) == 2
    said = "any_time is for labels of a queue"
    fails(said, compare, old, new, labels=labels, any_time=True)
    assert main(["label", sides[0], "--out", str(out)]) == 2
    filled_out = out.read_text()
    assert main(["label", *sides, "--out", str(out)]) == 2
    assert "has answers or is no queue, and would be lost" in capsys.readouterr().err
    assert out.read_text() == filled_out
    other = tmp_path / "labels.csv"
    other.write_text("id,label\n7,1\n")
    assert main(["label", *sides, "--out", str(other)]) == 2
    assert other.read_text() == "id,label\n7,1\n"
    sides[1] = shutil.copy(sides[1], str(tmp_path / "p.key.csv"))
    assert main(["label", *sides, "--out", str(tmp_path / "p.csv")]) == 2
    assert "p.key.csv would write over what is read" in capsys.readouterr().err


def test_the_command_that_is_printed_reads_what_label_read(tmp_path, capsys):
    columns = {"key": range(40), "said": np.zeros(40, int)}
    old = csv_file(tmp_path / "old 1.csv", **columns)
    new = csv_file(tmp_path / "new.csv", **columns | {"said": np.arange(40) % 3})
    out = str(tmp_path / "q 1.csv")
    words = ["--id-column", "key", "--prediction-column", "said"]
    words += ["--confirm", "row-order", "decisions"]
    assert main(["label", old, new, "--out", out, *words]) == 0
    printed = shlex.split(capsys.readouterr().out.splitlines()[-1])
    ends = ["--labels", out, "--max-nfr", "1%"]
    assert printed == ["churn-compare", old, new, *words, *ends]
    rows = pathlib.Path(out).read_text().replace(",,", ",0,", 1)
    pathlib.Path(out).write_text(rows)
    assert main(printed[1:]) != 2


def test_answers_without_a_target_are_judged_by_which_is_better(tmp_path):
    sides = [
        {"id": np.arange(40), "answer": [f"{word} {i // 2}" for i in range(40)]}
        for word in ("yes", "no")
    ]
    sides[1]["answer"][:20] = sides[0]["answer"][:20]
    queue = label_queue(*sides)
    assert queue.changed == 20 and queue.rows[0]["old"].startswith("yes")
    words = ["old", "new"] * 10
    rows = [row | {"better": of} for row, of in zip(queue.rows, words, strict=True)]
    found = compare_outcomes(*sides, labels=rows[:10] + list(queue.rows[10:]))["answer"]
    assert found[FLIPS[0]].value == found[FLIPS[1]].value == 0.25
    assert found.sampled.labelled == 10 and found["accuracy_gain"].value == 0
    asked = {"prompt": [f"question {i}" for i in range(40)]}
    old, new = (of | asked for of in sides)
    new["id"] = [*map(str, range(39)), "x"]  # those of the other are numbers
    for of in ({"on_missing": "intersect"}, {}):
        row = label_queue(old, new, **of).rows[0]
        assert row["input"] == f"question {row['id']}"
        old, new = ({n: of[n] for n in ("prompt", "answer")} for of in (old, new))
    notes = label_queue(*(of | {"value": np.arange(40)} for of in sides)).notes
    assert notes[-1].startswith("Only answer is used here, and not value; ")
    odd = [dict(row, better="x") for row in rows]
    fails("takes old, new, neither or both", compare_outcomes, *sides, labels=odd)
    pairs = {"labels": rows, "clusters": np.arange(40) // 2}
    fails("clusters and a queue", compare_outcomes, *sides, **pairs)
    for options in ({"equivalent": 0.01}, {"pool": "task"}):
        given = [of | {"task": [*"ab"] * 20} for of in sides]
        said = "can be better or worse; give"
        fails(said, compare_outcomes, *given, **options, of=GateError)

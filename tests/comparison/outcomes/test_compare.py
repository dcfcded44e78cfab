"""Outcomes from files to a verdict, by the command and in Python."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from churn_jax.cli import main
from churn_jax.comparison import compare_outcomes
from churn_jax.comparison.outcomes import noise_floor, read_outcomes
from churn_jax.example_ids import PredictionsError


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answers(right, **more):
    return [{"id": f"q{i}", "correct": bool(r), **more} for i, r in enumerate(right)]


def test_the_command_reads_lines_judges_gates_and_writes_pages(tmp_path, capsys):
    old = jsonl(tmp_path / "old.jsonl", answers([1] * 30 + [0] * 10))
    new = jsonl(tmp_path / "new.jsonl", answers([0] * 5 + [1] * 30 + [0] * 5))
    written = [tmp_path / f"page.{kind}" for kind in ("html", "json", "md")]
    words = [str(old), str(new), "--max-nfr", "5%", "--min-accuracy-gain", "-1%"]
    words += ["--html", str(written[0]), "--json", str(written[1])]
    assert main(["compare", *words, "--markdown", str(written[2])]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "12 % (5 to 26 %) were right and are wrong now" in said
    assert "FAIL negative flip rate at most 5 %" in said
    assert "PASS accuracy gain at least -1 points" in said
    assert all(path.stat().st_size > 500 for path in written)
    (measure,) = json.loads(written[1].read_text())["measures"]
    assert measure["quantities"]["negative_flip_rate"]["value"] == 0.125
    assert main(["compare", str(old), str(new), "--max-nfr", "30%"]) == 0


def test_order_of_rows_changes_nothing_and_repeats_are_runs(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": i,
            "run": r,
            "score": float(rng.normal()),
            "correct": int(rng.random() < 0.5),
        }
        for i in range(30)
        for r in range(3)
    ]
    new = [row | {"score": row["score"] + 1} for row in rows]
    straight = compare_outcomes(*map(_columns, (rows, new)))
    mixed = [rows[i] for i in rng.permutation(90)]
    shuffled = compare_outcomes(*map(_columns, (mixed, new)))
    assert straight["score"].runs == (3, 3)
    for name in ("score", "correct"):
        assert straight[name].quantities == shuffled[name].quantities
    assert straight["score"]["score_change"].value == pytest.approx(1.0)


def _columns(rows):
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def test_answers_are_compared_without_what_seldom_matters():
    old = {
        "id": [1, 2, 3],
        "answer": ["The Paris.", "4", "-4"],
        "target": ["paris", "4", "4"],
    }
    new = {
        "id": [3, 2, 1],
        "answer": ["4", "four", "paris"],
        "target": ["4", "4", "Paris"],
    }
    found = compare_outcomes(old, new)["answer"]
    assert found["accuracy_old"].value == pytest.approx(2 / 3)
    assert found["churn"].value == pytest.approx(2 / 3)
    assert found["share_reworded"].value == 1.0
    (fall,) = found.changes
    assert (fall.id, fall.old, fall.new, fall.target) == ("2", "4", "four", "4")


def test_sets_and_rankings_of_lists_and_texts():
    old = {"id": [1, 2], "ranking": ["a;b;c", "a;b;c"], "set": ["[1, 2]", "[]"]}
    new = {"id": [1, 2], "ranking": ["a;c;b", "a;b;c"], "set": ["[2, 1]", "[3]"]}
    found = compare_outcomes(old, new, top=2)
    assert found["ranking"]["mean_distance"].value == pytest.approx(1 / 3)
    assert found["set"]["mean_distance"].value == 0.5
    assert found["ranking, first 2"]["mean_distance"].value == pytest.approx(1 / 3)
    assert not found["set"].judged


def test_a_changed_input_is_named_and_not_compared():
    old = {"id": [1, 2, 3], "correct": [1, 1, 0], "input": ["a", "b", "c"]}
    new = old | {"input": ["a", "B", "c"], "correct": [1, 0, 0]}
    result = compare_outcomes(old, new)
    assert result.examples == 2 and result["correct"]["churn"].value == 0
    assert "1 of 3 examples have another input" in "".join(result.notes)
    assert compare_outcomes(old, new, ignore_inputs=True).examples == 3
    with pytest.raises(PredictionsError, match="add --ignore-inputs"):
        compare_outcomes(old, new | {"input": ["x", "y", "z"]})


def test_equivalence_is_another_sentence_than_no_difference():
    rng = np.random.default_rng(0)
    base = rng.normal(size=400)
    old, new = ({"score": base + 0.1 * rng.normal(size=400)} for _ in range(2))
    shown = compare_outcomes(old, new, equivalent=0.05)
    assert shown["score"].is_equivalent
    assert "It is shown that the change is smaller than 0.05" in str(shown)
    short = [{"score": side["score"][:10]} for side in (old, new)]
    assert "It is not shown" in str(compare_outcomes(*short, equivalent=0.05))


def test_slices_and_clusters():
    ids = np.arange(60)
    old, new = ({"id": ids, "correct": of} for of in (ids % 3 > 0, ids % 4 > 0))
    slices = {"id": ids, "topic": np.where(ids < 30, "a", "b"), "user": ids // 6}
    found = compare_outcomes(old, new, slices=slices, cluster="user")
    assert found.clusters == 10
    users = ["", *slices["user"][1:]]
    alone = compare_outcomes(old, new, slices={"user": users}, cluster="user")
    assert alone.clusters == 11 and "1 of" in alone.notes[-1]
    (a, b) = found["correct"].slices
    assert (a.name, a.examples, b.examples) == ("a", 30, 30)
    whole = found["correct"]["churn"].value
    parts = [of.quantities["churn"].value for of in (a, b)]
    assert np.mean(parts) == pytest.approx(whole)


def test_a_column_that_differs_between_the_sides_is_named():
    old = {"id": [1, 2, 3], "correct": [1, 0, 1], "topic": ["a", "b", "b"]}
    new = {"id": [3, 2, 1], "correct": [1, 1, 1], "topic": ["b", "a", "a"]}
    found = compare_outcomes(old, new, by=["topic"])
    assert [of.examples for of in found["correct"].slices] == [1, 2]  # as in old
    assert "topic differs between the two sides for 1 of 3 examples" in found.notes[-1]
    old, new = (
        {"id": [1, 2], "answer": ["a", "b"], "target": t} for t in "ab,ac".split(",")
    )
    old, new = (side | {"target": list(side["target"])} for side in (old, new))
    message = "targets of 1 of 2 examples differ between old and new, for example 2"
    with pytest.raises(PredictionsError, match=message):
        compare_outcomes(old, new)
    with pytest.raises(PredictionsError, match="targets of 1 of 2 examples differ"):
        noise_floor(old, new)
    runs = ({"id": [1], "answer": ["a"], "input": [text]} for text in "pq")
    with pytest.raises(PredictionsError, match="1 of 1 examples have another input"):
        noise_floor(*runs)
    old, new = (
        {"id": [1, 2], "value": [1, 2], "target": t} for t in ([1, 2], ["1.0", "2"])
    )
    assert compare_outcomes(old, new)["value"].judged


def test_benchmarks_are_pooled_in_three_ways():
    rng = np.random.default_rng(0)
    sizes = (40, 200, 60)
    task = np.repeat(list("abc"), sizes)
    gain = rng.normal(loc=np.repeat([0.3, 0.0, -0.1], sizes))
    old = {"score": np.zeros(300), "task": task}
    found = compare_outcomes(old, old | {"score": gain}, pool="task")["score"]
    parts = [gain[task == name] for name in "abc"]
    pooled = found.pooled
    assert pooled.mean_gain.value == pytest.approx(np.mean([p.mean() for p in parts]))
    error = np.sqrt(sum(p.var() / len(p) for p in parts)) / 3
    half = stats.t.ppf(0.975, 299) * error
    assert pooled.mean_gain.high - pooled.mean_gain.value == pytest.approx(
        half, rel=0.01
    )
    assert pooled.items_p == found.p
    worse = [stats.ttest_1samp(p, 0, alternative="less").pvalue for p in parts]
    fisher = stats.combine_pvalues(worse, "fisher").pvalue
    assert pooled.fisher_p == pytest.approx(fisher, rel=1e-6)


def test_a_gate_on_slices_names_the_worst():
    ids = np.arange(40)
    task = np.where(ids < 20, "facts", "sums")
    old = {"id": ids, "correct": np.ones(40), "task": task}
    new = old | {"correct": np.where(ids < 4, 0, 1)}
    gates = {"max_slice_nfr": 0.15, "max_nfr": 0.15}
    result = compare_outcomes(old, new, by=["task"], gates=gates)
    assert [gate.passed for gate in result.gates] == [False, True]
    assert "task facts 20 %" in result.gates[0].line


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ({"x": [1]}, {"x": [1]}, "no column of outcomes"),
        ({"correct": [1, 2]}, {"correct": [1, 0]}, "must be 0 or 1"),
        ({"score": ["a"]}, {"score": [1]}, "must hold numbers"),
        ({"score": [np.nan]}, {"score": [1.0]}, "lack an outcome"),
        ({"score": [np.inf]}, {"score": [1.0]}, "infinite"),
        ({"score": [1]}, {"correct": [1]}, "no outcome is on both sides"),
        ({"id": [1], "score": [1]}, {"id": [2], "score": [1]}, "only in old"),
        ({"id": [1], "score": [1]}, {"score": [1]}, "has no ids"),
        ({"score": [1, 2]}, {"score": [1]}, "cannot be matched"),
        ({"id": [1, 1, 2], "score": [1, 2, 3]}, {"score": [1]}, "as many rows as runs"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(old, new, says):
    with pytest.raises(PredictionsError, match=says):
        compare_outcomes(old, new)


def test_options_of_the_other_kind_are_refused(tmp_path, capsys):
    old = jsonl(tmp_path / "old.jsonl", answers([1, 0]))
    classes = tmp_path / "a.csv"
    classes.write_text("id,prediction\n1,0\n2,1\n")
    for words, says in (
        ([old, old, "--labels", old], "--labels is for predicted classes"),
        ([classes, classes, "--tolerance", "1"], "--tolerance is for outcomes"),
        ([old, old, "--max-share-worse", "0.5"], "no such number here"),
    ):
        assert main(["compare", *map(str, words)]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("label,score\ncat,0.9\ndog,0.8\ncat,0.7", "prediction (column label)"),
        ("output,target,correct\nCat,cat,1\nDog,cat,0\nA,a,1", "3 examples; correct"),
        ("target,score\nParis,0.5\nRome,0.8\nBern,1.0", "3 examples; score"),
        ("p_value,p_adj,correct\n0.1,0.3,1\n0.2,0.9,0\n0.1,0.1,1", "; correct"),
        ("p_cat,p_dog,score\n0.1,0.9,1\n0.2,0.8,0\n0.1,0.9,1", "2 classes"),
    ],
)
def test_columns_say_whether_classes_or_outcomes_are_compared(
    columns, says, tmp_path, capsys
):
    lines = columns.split("\n")
    rows = [f"id,{lines[0]}", *(f"{i},{row}" for i, row in enumerate(lines[1:]))]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(rows) + "\n")
    assert main(["compare", str(path), str(path), "--resamples", "100"]) == 0
    assert says in " ".join(capsys.readouterr().out.split())


def test_a_log_of_the_harness(tmp_path):
    def rows(right):
        for i, r in enumerate(right):
            shared = {"doc_id": i, "doc": {}, "target": "x", "filtered_resps": [str(r)]}
            shared |= {"prompt_hash": f"h{i}", "metrics": ["exact_match"]}
            yield shared | {"filter": "strict", "exact_match": float(r)}
            yield shared | {"filter": "flexible", "exact_match": 1.0}

    old = jsonl(tmp_path / "samples_a.jsonl", rows([1, 1, 0]))
    new = jsonl(tmp_path / "samples_b.jsonl", rows([1, 0, 0]))
    found = compare_outcomes(old, new)
    assert found["exact_match"]["negative_flip_rate"].value == pytest.approx(1 / 3)
    assert found["answer"]["share_changed"].value == pytest.approx(1 / 3)


def test_noise_is_that_of_all_pairs_of_runs_of_any_kind(tmp_path, capsys):
    rng = np.random.default_rng(0)
    ids, labels = np.arange(40) + 7, np.arange(40) % 3
    logits = 2 * np.eye(3)[labels] + rng.normal(size=(3, 40, 3))
    paths = [tmp_path / f"{r}.npz" for r in range(3)]
    for path, run in zip(paths, logits):
        order = rng.permutation(40)
        np.savez(path, ids=ids[order], labels=labels[order], logits=run[order])
    classes = logits.argmax(-1)
    pairs = ((0, 1), (0, 2), (1, 2))
    differ = np.mean([np.mean(classes[a] != classes[b]) for a, b in pairs])
    found = noise_floor(*paths)["prediction"]
    assert found["runs_differ"].value == pytest.approx(differ)
    assert found["runs_agree"].value == np.mean((classes == classes[0]).all(axis=0))
    np.testing.assert_allclose(found.of_runs, (classes == labels).mean(axis=1))
    page = tmp_path / "noise.html"
    words = ["compare", "--noise", *map(str, paths), "--html", str(page)]
    assert main(words) == 0 and page.stat().st_size > 500
    said = " ".join(capsys.readouterr().out.split())
    assert "Two of 3 runs differ on" in said and "standard deviation" in said
    assert main(["compare", "--noise", str(paths[0])]) == 2
    assert "there is one" in capsys.readouterr().err
    assert main(["compare", "--noise", *map(str, paths), "--top", "3"]) == 2
    assert "--top is for OLD and NEW, not for --noise" in capsys.readouterr().err


def test_noise_of_classes_in_clusters(tmp_path):
    rows = [f"{i},{'' if i == 3 else i // 5},{i % 3 == 0:d}" for i in range(40)]
    other = [row[:-1] + "1" for row in rows[:10]] + rows[10:]
    for name, lines in (("a", rows), ("b", other[::-1])):
        text = "\n".join(["id,user,prediction", *lines])
        (tmp_path / f"{name}.csv").write_text(text + "\n")
    found = noise_floor(tmp_path / "a.csv", tmp_path / "b.csv", cluster="user")
    assert found.clusters == 9  # the one without a user is alone
    assert "1 of 40 examples have no cluster: each is one of its own." in found.notes
    assert found["prediction"]["runs_differ"].value == 6 / 40


LOGS = Path(__file__).parent / "logs"  # experiments/compare/evaluation_logs.py


def test_logs_that_the_tools_wrote():
    found = compare_outcomes(*(LOGS / f"samples_sums_{i}.jsonl" for i in (1, 2)))
    assert [measure.name for measure in found.measures] == ["acc", "answer"]
    assert found["acc"]["accuracy_old"].value == 0.625  # what lm_eval printed
    assert found["acc"]["accuracy_new"].value == 0.375
    assert found["answer"]["share_changed"].value == 0.625  # the choices' numbers
    assert not found.notes  # hashes of prompts vouch for ids that count
    free = compare_outcomes(
        LOGS / "samples_free_1.jsonl", LOGS / "samples_free_1.jsonl"
    )
    assert free["exact_match"]["churn"].value == 0.0
    found = compare_outcomes(
        *(LOGS / f"inspect_{side}.eval" for side in ("old", "new"))
    )
    assert found["match"].runs == (2, 2) and found.examples == 6
    rates = {name: i.value for name, i in found["match"].quantities.items()}
    assert rates["negative_flip_rate"] == pytest.approx(1 / 6)  # s2
    assert rates["positive_flip_rate"] == pytest.approx(2 / 6)  # s1, s4
    assert rates["stability_old"] == rates["stability_new"] == 1.0


def test_a_log_of_inspect_in_both_forms(tmp_path):
    def sample(i, epoch, grade):
        score = {"value": grade, "answer": f"{grade} {i}"}
        return {
            "id": i,
            "epoch": epoch,
            "input": "?",
            "target": "t",
            "scores": {"match": score},
        }

    samples = [sample(i, e, "CIP"[(i + e) % 3]) for i in range(4) for e in (1, 2)]
    plain = tmp_path / "log.json"
    plain.write_text(json.dumps({"eval": {}, "samples": samples}))
    packed = tmp_path / "log.eval"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("header.json", "{}")
        for number, one in enumerate(samples):
            archive.writestr(f"samples/{number}.json", json.dumps(one))
    a, b = read_outcomes(plain), read_outcomes(packed)
    assert a.runs == b.runs == 2 and a.kinds == {"match": "score", "answer": "answer"}
    np.testing.assert_array_equal(a.columns["match"], b.columns["match"])
    assert set(a.columns["match"].ravel()) == {0.0, 0.5, 1.0}

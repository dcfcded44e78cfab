"""Clusters of examples: by hand, by loops in float64, and how they are read."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import churn_compare
from churn_compare import join, read_side
from churn_compare.estimates import PerExample, all_examples
from churn_compare.noise import noise_floor
from churn_compare.pair import Scanned, ScannedSide
from churn_compare.significance import sign_flip_exact
from churn_compare.sums import partition, ratio, value_sums
from tests.cases import class_scan, csv_file, fails, groups_of, intervals, noise, p_of


def clustered(seed, runs=(1, 1), clusters=30, examples=400):
    """Two versions whose flips are alike within clusters, labels and the clusters."""
    rng = np.random.default_rng(seed)
    of = np.concatenate([np.arange(clusters), rng.integers(0, clusters, examples)])
    rate = rng.beta(0.3, 1.5, clusters)[of[:examples]]
    sides = (rng.random((r, examples)) < rate for r in runs)
    return class_scan(*sides), np.zeros(examples, np.int64), of[:examples]


@pytest.mark.parametrize("runs", [(1, 1), (3, 2)])
def test_the_variance_is_that_of_leaving_clusters_out(runs):
    scanned, labels, clusters = clustered(0, runs)
    clusters[:150] = 0  # one of them has many examples
    parts, G = partition(len(labels), 1, 0, clusters), clusters.max() + 1
    changes = np.array([a != b for _, a, b in scanned.pairs()])
    size = np.bincount(parts.group, minlength=parts.groups)[:, None, None]
    sums = value_sums(changes.reshape(*runs, -1), parts.group, parts.groups)
    known = ratio(sums, size, np.nan, parts.clusters).uncertainty(parts.clusters)
    of_all = all_examples(len(labels), clusters, 0.95).known
    changed = changes.mean(axis=0)
    left = [changed[clusters != g].mean() - changed.mean() for g in range(G)]
    squares = np.square(left)
    expected = (G - 1) / G * squares.sum()
    assert known.examples == pytest.approx(expected, rel=1e-12)
    assert of_all(PerExample(changed)).examples == pytest.approx(expected, rel=1e-12)
    if runs == (1, 1):
        fewer = 2 / (np.sum(squares**2) / squares.sum() ** 2 - 1 / G)
        freedom = min(G - 1, fewer)
        assert known.quantile(0.95) == pytest.approx(stats.t.ppf(0.975, freedom))


def test_intervals_hold_the_truth_if_one_cluster_has_most_examples(rng):
    clusters, held = np.repeat(np.arange(21), [100] + 20 * [1]), []
    top, labels = np.full((1, 120), 0.8, np.float32), np.zeros(120)
    truth = {"churn": 2 * 0.3 * 0.7, "accuracy_gain": 0.0, "nll_change": 0.0}
    for _ in range(60):
        wrong = rng.random((2, 1, 120)) < rng.beta(0.3, 0.7, (2, 1, 21))[..., clusters]
        sides = [ScannedSide(1 * x, top, np.where(x, -1.5, -0.2), x) for x in wrong]
        found = intervals(Scanned(*sides), labels, clusters, resamples=10)
        held.append([found[k].low <= x <= found[k].high for k, x in truth.items()])
    assert np.mean(held, axis=0).min() >= 0.9
    clusters, wide = np.repeat(np.arange(15), [33] * 3 + 9 * [1] + 3 * [4]), []
    for _ in range(20):  # a mean varies as much as its difference from a constant
        wrong = rng.random((1, 120)) < rng.beta(0.3, 0.7, 15)[clusters]
        old = ScannedSide(1 * wrong, top, np.where(wrong, -1.5, -0.2), wrong)
        new = dataclasses.replace(old, label_log_prob=np.zeros((1, 120)))
        found = intervals(Scanned(old, new), labels, clusters, resamples=100)
        wide.append([found[k].high - found[k].low for k in ("nll_old", "nll_change")])
    assert np.divide(*np.mean(wide, axis=0)) == pytest.approx(1, abs=0.1)


def test_a_part_of_the_examples_is_as_if_there_were_no_others():
    scanned, labels, clusters = clustered(2)
    inside = np.arange(len(labels)) % 3 == 0
    kept = np.unique(clusters[inside], return_inverse=True)[1]
    part = class_scan(*(s.predicted[:, inside] for s in (scanned.old, scanned.new)))
    alone = intervals(part, labels[inside], clusters=kept)
    groups = np.where(inside, 0, -1)
    found, of_groups = groups_of(scanned, labels, groups, 1, clusters)
    assert vars(found["churn"].of(0)) == pytest.approx(vars(alone["churn"]))
    assert of_groups[0] == p_of(part, labels[inside], kept)


def test_copies_of_each_example_are_one_cluster():
    scanned, labels, _ = clustered(28, (3, 3), examples=300)
    sides = (scanned.old.predicted, scanned.new.predicted)
    copied = class_scan(*(np.repeat(side, 5, axis=1) for side in sides))
    clusters = np.repeat(np.arange(300), 5)
    single = intervals(scanned, labels, clusters=np.arange(300))
    found = intervals(copied, np.repeat(labels, 5), clusters=clusters)
    for name, interval in single.items():
        assert vars(found[name]) == pytest.approx(vars(interval)), name
    ours, theirs = noise(copied, clusters=clusters), noise(scanned)
    assert ours.p == pytest.approx(theirs.p, rel=1e-9)
    assert ours.excess.value == pytest.approx(theirs.excess.value)
    assert noise(copied).p < 0.7 * ours.p < 0.5


def test_more_clusters_than_groups():
    scanned, labels, clusters = clustered(5, clusters=9000, examples=30000)
    parts = partition(len(labels), 1, 0, clusters)
    assert parts.groups < parts.clusters == clusters.max() + 1
    whole = np.unique(np.stack([clusters, parts.group]), axis=1)
    assert whole.shape[1] == len(np.unique(clusters))  # no cluster is divided
    found = intervals(scanned, labels, clusters=clusters, resamples=100)["churn"]
    changed = scanned.old.predicted[0] != scanned.new.predicted[0]
    sums = np.bincount(clusters, changed - changed.mean())
    half = 1.96 * np.sqrt(np.sum(np.square(sums))) / len(labels)
    assert found.high - found.value == pytest.approx(half, rel=0.06)


def test_the_sign_flip_test_by_enumeration_and_in_large_samples(rng):
    for _ in range(20):
        net = rng.integers(-4, 5, size=rng.integers(1, 10))
        signs = np.stack(np.meshgrid(*[[-1, 1]] * len(net)), -1).reshape(-1, len(net))
        expected = np.mean(np.abs(signs @ net) >= abs(net.sum()))
        assert sign_flip_exact(net) == pytest.approx(expected, abs=1e-12)
    many = rng.integers(-3, 4, size=20_000)
    many[:90] = 3
    durkalski = many.sum() ** 2 / np.sum(np.square(many))
    assert sign_flip_exact(many) == pytest.approx(stats.chi2.sf(durkalski, 1), rel=0.02)
    huge = np.append(many, [400_000, -400_000, 300_000, -300_000])  # beyond the lattice
    z = many.sum() / np.sqrt(np.sum(np.square(huge, dtype=float)))
    assert sign_flip_exact(huge) == pytest.approx(2 * stats.norm.sf(abs(z)))
    fails("whole", sign_flip_exact, [0.5], of=ValueError)


OLD, NEW, LABELS = [0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 0]
DOCUMENTS = ["a", "a", "b", "b", "c", "c"]


def test_clusters_as_values_as_a_mapping_and_as_a_column(tmp_path):
    ids = [f"x{i}" for i in range(6)]
    plain = churn_compare.compare(OLD, NEW, labels=LABELS, clusters=DOCUMENTS)
    assert (plain.clusters.count, plain.clusters.largest) == (3, 2)
    old, new = ({"prediction": p, "id": ids, "label": LABELS} for p in (OLD, NEW))
    mapped = dict(zip(ids, DOCUMENTS, strict=True))
    table = {"id": ids[::-1], "doc": DOCUMENTS[::-1], "part": list("mmmnnn")}
    path = csv_file(tmp_path / "old.csv", **old, doc=DOCUMENTS)
    for given, options in (
        (old, {"clusters": mapped}),
        (old, {"clusters": "doc", "slices": table}),
        (path, {"clusters": "doc"}),
        (old | {"doc": DOCUMENTS}, {"clusters": "doc"}),
    ):
        found = churn_compare.compare(given, new, **options)
        assert vars(found["churn"]) == vars(plain["churn"])
        assert found.p == plain.p
        assert list(found.groupings) == ["class", *(["part"] * ("slices" in options))]
    assert "6 examples in 3 clusters of doc" in str(found)
    assert "for new clusters of doc" in str(found)
    assert found.to_dict()["clusters"]["column"] == "doc"


def test_an_interval_of_clusters_is_compared_with_that_of_examples(rng):
    clusters, old = np.arange(60) // 3, np.zeros(60, int)
    one_in_each = np.arange(60) % 3 == 0
    for new in (old, one_in_each, rng.random(60) < 0.2 * (clusters % 3)):
        for labels, name in ((None, "churn"), (old, "accuracy_gain")):
            found, alone = (
                churn_compare.compare(old, 1 * new, labels=labels, clusters=of)
                for of in (clusters, None)
            )
            wide, narrow = (of[name].high - of[name].low for of in (found, alone))
            assert found.clusters.wider == pytest.approx(wide / narrow)
            assert f"{wide / narrow:.2f} times as wide" in " ".join(str(found).split())
            assert "nan" not in str(found)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ("dok", "no column 'dok', or it is read as something else; others are none"),
        (["a"] * 6, "all examples are in one cluster"),
        (["a", "b"], "the clusters are of 2 examples, the predictions of 6"),
        ({"id": [0], "a": [1], "b": [2]}, "clusters must be one column; it has"),
        ({0: "a", 1: "b"}, "the clusters lack 4 of 6 ids"),
    ],
)
def test_what_is_refused(clusters, message):
    sides = ({"prediction": p, "id": list(range(6))} for p in (OLD, NEW))
    fails(message, churn_compare.compare, *sides, labels=LABELS, clusters=clusters)


def test_columns_of_rows_that_are_runs_belong_to_one_example_each(tmp_path, rng):
    docs = {f"x{i}": f"d{i % 7}" for i in range(60)}
    paths = tmp_path / "old.csv", tmp_path / "new.csv"
    for path in paths:
        rows = [f"{i},{r},{rng.integers(2)},{docs[i]}" for r in (0, 1) for i in docs]
        rows = [rows[k] for k in rng.permutation(len(rows))]
        path.write_text("\n".join(["id,run,prediction,doc", *rows, ""]))
    pair = join(*map(read_side, paths), clusters="doc", by=["doc"])
    assert pair.slices["doc"].tolist() == [docs[i] for i in pair.ids.tolist()]
    assert len({*zip(pair.clusters.tolist(), pair.slices["doc"].tolist())}) == 7
    noise = (noise_floor(*paths, clusters=of)["prediction"] for of in ("doc", docs))
    one, other = (vars(of["runs_differ"]) for of in noise)
    assert one == pytest.approx(other)
    old = {"id": [0, 1, 0, 1], "run": [0, 0, 1, 1], "prediction": [1, 1, 1, 0]}
    old = csv_file(tmp_path / "old.csv", **old, doc="abaa")
    score = csv_file(tmp_path / "s.csv", id="0101", score="1234", doc="abaa")
    message = "rows of the same id differ in column doc"
    for more in ({"clusters": "doc"}, {"by": ["doc"]}):
        more["confirm"] = ["same-file"]
        fails(message, churn_compare.compare, old, old, **more)
        fails(message, churn_compare.compare_outcomes, score, score, **more)
        fails(message, noise_floor, score, clusters="doc")

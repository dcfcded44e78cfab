"""The papers' numbers: read as printed, consistent with each other, doubts marked."""

import dataclasses

import numpy as np
import pytest

from churn_jax.reports.published import Published, published, published_keys, table
from churn_jax.studies.presets import PRESETS, preset

PAPER = "reproducibility"
AD = "anti-distillation"
KEYS = [key for key in published_keys() if key.startswith(f"{PAPER}/")]
ELODI = "elodi"
DATA = ("cifar10", "cifar100", "imagenet", "inaturalist2018", "svhn")
WHOLE = [k for k in KEYS if k.split("/")[1] in ("table2", "table7")]


def test_every_table_of_the_first_paper_is_there():
    tables = [key.split("/")[1] for key in KEYS]
    assert {f"table{n}" for n in range(1, 8)} <= set(tables)
    assert [k.split("/")[2] for k in KEYS if "table2" in k] == list(DATA)
    rows = [f"{PAPER}/table2/{data}" for data in DATA]
    counted = sum(len(_as_printed("Table 2", key)) for key in rows)
    assert counted == 29
    assert all(row for key in published_keys() for row in published(key).values())


def _as_printed(source, key):
    return {
        method: row
        for method, row in published(key).items()
        if row.get("churn", Published(0)).source == source
    }


@pytest.mark.parametrize("key", WHOLE)
def test_churn_is_the_mixture_of_its_two_slices(key):
    for method, row in published(key).items():
        accuracy = row["accuracy"].mean
        mixed = accuracy * row["churn_correct"].mean
        mixed += (1 - accuracy) * row["churn_incorrect"].mean
        assert mixed == pytest.approx(row["churn"].mean, abs=0.0012), method


@pytest.mark.parametrize(
    "key",
    [k for k in KEYS if k.split("/")[1] in ("table3", "table5", "table7")],
)
def test_tables_agree_where_they_overlap(key):
    ours, theirs = published(f"{PAPER}/table2/{key.split('/')[2]}"), published(key)
    shared = 0
    for method, row in theirs.items():
        for metric in row if method in ours else ():
            a, b = ours[method][metric], row[metric]
            assert dataclasses.replace(a, source=b.source) == b, (method, metric)
            shared += 1
    assert shared >= 8


def doubtful_cells(paper):
    return {
        (key.removeprefix(f"{paper}/"), method, metric)
        for key in published_keys()
        if key.startswith(f"{paper}/")
        for method, row in published(key).items()
        for metric, number in row.items()
        if number.doubtful
    }


def test_doubtful_cells_are_exactly_those_known():
    assert doubtful_cells(PAPER) == {
        ("table1/cifar10", "off", "churn"),
        ("table1/cifar10", "off_init", "churn"),
        *(
            ("table6/cifar10", column, metric)
            for column in ("column2", "column3")
            for metric in ("accuracy", "churn", "surrogate_churn")
        ),
        ("table2/imagenet", "codistill_ce", "surrogate_churn"),
        ("table7/imagenet", "codistill_ce", "surrogate_churn"),
    }
    row = published(f"{PAPER}/table1/cifar10")["off"]
    assert "caption" in row["churn"].note and row["accuracy"].note == ""


@pytest.mark.parametrize(
    ("key", "method", "metric", "mean", "std", "source"),
    [
        ("table2/cifar10", "baseline", "churn", 0.0572, 0.0018, "Table 2"),
        ("table2/cifar10", "ensemble", "churn", 0.0402, 0.0012, "Table 7"),
        ("table2/cifar100", "distillation", "ece", 0.1385, 0.0023, "Table 4"),
        ("table2/imagenet", "codistill_skl", "beta", 0.06, None, "Table 5"),
        ("table2/cifar10", "distillation", "temperature", 3.0, None, "Table 5"),
        ("table2/cifar10", "ensemble", "inference_cost", 2, None, "Table 7"),
        ("table2/svhn", "codistill_skl", "surrogate_churn", 0.122, 0.0035, "Table 2"),
        ("table3/cifar100", "codistill_skl_wd0", "churn", 0.2314, 0.0083, "Table 3"),
        ("table1/cifar10", "init_order", "churn", 0.0579, 0.0018, "Table 1"),
        ("table6/cifar10", "init_data", "churn", 0.0133, 0.001, "Table 6"),
        (
            "section4/cifar10",
            "codistill_skl_init",
            "churn",
            0.0424,
            0.0007,
            "Section 4",
        ),
    ],
)
def test_numbers_are_those_printed(key, method, metric, mean, std, source):
    number = published(f"{PAPER}/{key}")[method][metric]
    assert (number.mean, number.std, number.source) == (mean, std, source)


def test_means_and_deviations_are_in_the_right_unit():
    settings = {"training_cost", "inference_cost", "alpha", "beta", "temperature"}
    for key in KEYS:
        for method, row in published(key).items():
            for metric, number in row.items():
                assert (number.std is None) == (metric in settings), (key, method)
                if number.std is not None:
                    assert 0 < number.std < 0.1 and 0 < number.mean < 1, (key, method)


@pytest.mark.parametrize(
    ("key", "method", "metric", "mean", "source"),
    [
        ("table1/mnist", "baseline", "accuracy", 0.992, "Table 1"),
        ("table1/mnist", "baseline", "prediction_difference", 0.0777, "Table 1"),
        ("table1/mnist", "ad_0_05", "label_prediction_difference", 0.0051, "Table 1"),
        ("table1/mnist", "ad_1", "hamming_prediction_difference", 0.0057, "Table 1"),
        ("table2/mnist", "ensemble_6", "prediction_difference_2", 0.0236, "Table 2"),
        ("table2/mnist", "ad_8", "prediction_difference", 0.0009, "Table 2"),
        ("table3/clicks", "correlation_1_s10", "log_loss_change", 0.00907, "Table 3"),
        ("table3/clicks", "correlation_5_s5", "rank_loss_change", 0.00324, "Table 3"),
        (
            "table3/clicks",
            "covariance_1_s1",
            "positive_prediction_difference",
            0.0612,
            "Table 3",
        ),
    ],
)
def test_numbers_of_the_second_paper_are_those_printed(
    key, method, metric, mean, source
):
    number = published(f"{AD}/{key}")[method][metric]
    assert (number.mean, number.std, number.source) == (mean, None, source)


def test_tables_of_the_second_paper_agree_and_their_doubts_are_told():
    one, two = published(f"{AD}/table1/mnist"), published(f"{AD}/table2/mnist")
    for first, second in (("baseline", "ensemble_2"), ("ad_0_5", "ad_2")):
        for metric, number in two[second].items():
            printed = dataclasses.replace(number, source="Table 1")
            assert one[first][metric] == printed, (first, metric)
    shifted = {
        (f"ad_0_{i}", metric)
        for i in (1, 2)
        for metric in set(one["baseline"]) - {"nll"}
    }
    signs = {
        (row, "log_loss_change")
        for row in ("correlation_0_5_s1", "covariance_1_s1", "difference_1_s1")
    }
    assert doubtful_cells(AD) == {
        *(("table1/mnist", row, metric) for row, metric in shifted),
        *(("table1/mnist", row, "nll") for row in one),
        *(("table3/clicks", row, metric) for row, metric in signs),
    }
    assert "ascending order" in one["ad_0_1"]["accuracy"].note
    assert "summed" in one["ad_0_1"]["nll"].note
    assert len(published(f"{AD}/table3/clicks")) == 12


@pytest.mark.parametrize("name", [n for n in PRESETS if preset(n).published])
def test_presets_name_published_tables_and_their_rows(name):
    config = preset(name)
    rows = published(config.published)
    named = {spec.name for spec in config.methods}
    named |= {f"{update.old}->{update.new}" for update in config.updates}
    paper_only = set(rows) - named
    expected = set()
    if (
        config.published == f"{PAPER}/table6/cifar10"
    ):  # two of its columns cannot be assigned to rows
        expected = {"column2", "column3"}
    if config.published.startswith("diversity/"):  # some of the teachers, not all
        expected = {"de1", "de2", "de3"}
    assert paper_only == expected


def test_a_wrong_key_names_the_closest():
    with pytest.raises(ValueError, match="did you mean reproducibility/table2/cifar10"):
        published("reproducibility/table2/cifar")
    with pytest.raises(ValueError, match="no published table 'x'"):
        published("x")
    assert table(f"{PAPER}/table1/cifar10").runs == 5


def test_the_third_papers_table_is_as_the_released_code_prints_it():
    rows = published("diversity/table1/cifar100")
    assert list(rows) == [
        *("de1", "de2", "de3", "teachers", "kd", "gaussian", "ods", "conf_ods")
    ]
    kd = rows["kd"]
    # Accuracy is printed in per cent, the ECE as a fraction: 7.2 %.
    assert (kd["accuracy"].mean, kd["ece"].mean) == (0.804, 0.072)
    assert (kd["nll"].mean, kd["calibrated_nll"].mean) == (0.804, 0.750)
    assert rows["teachers"]["calibrated_brier"].mean == 0.246
    source = "Table 1 as in the README of the released code"
    for row in rows.values():
        assert len(row) == 8
        assert {number.source for number in row.values()} == {source}
        for metric, number in row.items():
            assert number.mark == ("derived" if metric == "dee" else ""), metric
            assert number.std is None and bool(number.note) == (metric == "dee")
    assert doubtful_cells("diversity") == set()
    assert table("diversity/table1/cifar100").runs == 0


def test_what_is_derived_follows_from_what_is_printed():
    rows = published("diversity/table1/cifar100")
    sizes = ("de1", "de2", "de3", "teachers")
    curve = np.array([rows[name]["calibrated_nll"].mean for name in sizes])
    for name, row in rows.items():
        # The curve falls, so its inverse is that of the reversed curve.
        size = np.interp(row["calibrated_nll"].mean, curve[::-1], [4, 3, 2, 1])
        assert row["dee"].mean == pytest.approx(size, abs=0.006), name


ELODI_KEYS = [key for key in published_keys() if key.startswith(f"{ELODI}/")]


def test_every_table_of_the_fourth_paper_is_there():
    tables = {key.split("/")[1] for key in ELODI_KEYS}
    assert tables == {f"table{n}" for n in (*range(1, 9), 10, 11)} | {"figure6"}
    assert len(published(f"{ELODI}/table1/imagenet")) == 11
    assert len(published(f"{ELODI}/table6/imagenet")) == 9


@pytest.mark.parametrize("key", ELODI_KEYS)
def test_relative_flips_follow_from_their_row_or_are_doubtful(key):
    for name, row in published(key).items():
        flips = row["negative_flip_rate"]
        assert 0.002 < flips.mean < 0.15 and flips.std is None
        if "relative_negative_flip_rate" not in row:
            continue
        independent = (1 - row["old_error"].mean) * row["new_error"].mean
        relative = row["relative_negative_flip_rate"]
        expected = pytest.approx(flips.mean / independent, abs=0.0005)
        assert (relative.mean == expected) == (not relative.doubtful), name


def test_doubtful_cells_of_the_fourth_paper_are_exactly_those_known():
    arrows = {
        (f"table{n}/imagenet", name, "negative_flip_rate")
        for n in (5, 7)
        for name in published(f"{ELODI}/table{n}/imagenet")
    }
    assert doubtful_cells(ELODI) == arrows | {
        ("table1/imagenet", "dropout", "relative_negative_flip_rate"),
        ("table1/imagenet", "bct", "relative_negative_flip_rate"),
        ("table6/imagenet", "none_rn101", "new_error"),
    }


@pytest.mark.parametrize(
    ("key", "method", "metric", "mean", "source"),
    [
        ("table1/imagenet", "fd_lm", "negative_flip_rate", 0.0292, "Table 1"),
        ("table1/imagenet", "elodi", "old_error", 0.3134, "Table 1"),
        ("table2/inaturalist", "old->fd", "new_error", 0.4003, "Table 2"),
        (
            "table3/imagenet",
            "old_classes->none",
            "negative_flip_rate",
            0.1407,
            "Table 3",
        ),
        ("table4/ag_news", "none", "relative_negative_flip_rate", 0.1669, "Table 4"),
        ("table6/imagenet", "elodi_swin_tiny", "new_error", 0.1984, "Table 6"),
        ("table8/imagenet", "mixed_strong", "negative_flip_rate", 0.0224, "Table 8"),
        ("table10/imagenet", "fd_ensemble_t1", "new_error", 0.2406, "Table 10"),
        ("table11/imagenet", "elodi_offline", "old_error", 0.3249, "Table 11"),
        ("figure6/imagenet", "elodi_m8", "negative_flip_rate", 0.0215, "Section 5.5"),
    ],
)
def test_numbers_of_the_fourth_paper_are_those_printed(
    key, method, metric, mean, source
):
    number = published(f"{ELODI}/{key}")[method][metric]
    assert (number.mean, number.std, number.source) == (mean, None, source)


def test_tables_of_the_fourth_paper_agree_where_they_repeat_a_row():
    main = published(f"{ELODI}/table1/imagenet")
    for key, ours, theirs in (
        ("table8", "none", "none"),
        ("table10", "elodi_top10", "elodi_top10"),
        ("figure6", "none", "none"),
    ):
        for metric, number in published(f"{ELODI}/{key}/imagenet")[ours].items():
            assert number.mean == main[theirs][metric].mean, (key, metric)

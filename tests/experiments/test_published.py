"""The papers' numbers: read as printed, consistent with each other, doubts marked."""

import dataclasses

import numpy as np
import pytest

from churn_jax.reports.published import published
from tests.experiment_numbers import published_places

PAPER, AD, ELODI = "reproducibility", "anti_distillation", "elodi"
DATA = ("cifar10", "cifar100", "imagenet", "inaturalist2018", "svhn")

# Table, row, metric, mean, standard deviation, where it is printed.
PRINTED = """
reproducibility/table2/cifar10 baseline churn 0.0572 0.0018 Table 2
reproducibility/table2/cifar100 distillation ece 0.1385 0.0023 Table 4
reproducibility/table2/cifar10 distillation temperature 3.0 - Table 5
reproducibility/table3/cifar100 codistill_skl_wd0 churn 0.2314 0.0083 Table 3
reproducibility/table1/cifar10 init_order churn 0.0579 0.0018 Table 1
reproducibility/section4/cifar10 codistill_skl_init churn 0.0424 0.0007 Section 4
anti_distillation/table1/mnist baseline prediction_difference 0.0777 - Table 1
anti_distillation/table1/mnist ad_1 hamming_prediction_difference 0.0057 - Table 1
anti_distillation/table2/mnist ad_8 prediction_difference 0.0009 - Table 2
anti_distillation/table3/clicks correlation_1_s10 log_loss_change 0.00907 - Table 3
elodi/table1/imagenet fd_lm negative_flip_rate 0.0292 - Table 1
elodi/table2/inaturalist old->fd new_error 0.4003 - Table 2
elodi/table4/ag_news none relative_negative_flip_rate 0.1669 - Table 4
elodi/table8/imagenet mixed_strong negative_flip_rate 0.0224 - Table 8
elodi/figure6/imagenet elodi_m8 negative_flip_rate 0.0215 - Section 5.5
"""


def table(key):
    """Of `paper/table/data`."""
    paper, _, name = key.partition("/")
    return published(f"{file_of(paper)}:{name}")


def rows_of(key):
    return table(key)[1]


def keys_of(paper, *tables):
    names = [place.rpartition(":")[2] for place in published_places(file_of(paper))]
    found = [f"{paper}/{name}" for name in names]
    return [key for key in found if not tables or key.split("/")[1] in tables]


def file_of(paper):
    return f"experiments/{paper}/published.csv"


def test_numbers_are_those_printed():
    for line in PRINTED.strip().splitlines():
        key, method, metric, mean, std, source = line.split(maxsplit=5)
        number = rows_of(key)[method][metric]
        deviation = None if std == "-" else float(std)
        assert (number.mean, number.std, number.source) == (
            *(float(mean), deviation, source),
        ), line


def test_churn_is_the_mixture_of_its_two_slices():
    for key in keys_of(PAPER, "table2", "table7"):
        for method, row in rows_of(key).items():
            accuracy = row["accuracy"].mean
            mixed = accuracy * row["churn_correct"].mean
            mixed += (1 - accuracy) * row["churn_incorrect"].mean
            assert mixed == pytest.approx(row["churn"].mean, abs=0.0012), method


@pytest.mark.parametrize("key", keys_of(PAPER, "table3", "table5", "table7"))
def test_tables_agree_where_they_overlap(key):
    ours, theirs = rows_of(f"{PAPER}/table2/{key.split('/')[2]}"), rows_of(key)
    shared = 0
    for method, row in theirs.items():
        for metric in row if method in ours else ():
            a, b = ours[method][metric], row[metric]
            assert dataclasses.replace(a, source=b.source) == b, (method, metric)
            shared += 1
    assert shared >= 8


def test_means_and_deviations_are_in_the_right_unit():
    settings = {"training_cost", "inference_cost", "alpha", "beta", "temperature"}
    for key in keys_of(PAPER):
        for method, row in rows_of(key).items():
            for metric, number in row.items():
                assert (number.std is None) == (metric in settings), (key, method)
                if number.std is not None:
                    assert 0 < number.std < 0.1 and 0 < number.mean < 1, (key, method)


def doubtful_cells(paper):
    return {
        (key.removeprefix(f"{paper}/"), method, metric)
        for key in keys_of(paper)
        for method, row in rows_of(key).items()
        for metric, number in row.items()
        if number.mark == "doubtful"
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
    row = rows_of(f"{PAPER}/table1/cifar10")["off"]
    assert "caption" in row["churn"].note and row["accuracy"].note == ""

    one = rows_of(f"{AD}/table1/mnist")
    signs = ("correlation_0_5_s1", "covariance_1_s1", "difference_1_s1")
    assert doubtful_cells(AD) == {
        *(("table1/mnist", f"ad_0_{i}", m) for i in (1, 2) for m in one["baseline"]),
        *(("table1/mnist", row, "nll") for row in one),
        *(("table3/clicks", row, "log_loss_change") for row in signs),
    }
    assert "ascending order" in one["ad_0_1"]["accuracy"].note
    assert "summed" in one["ad_0_1"]["nll"].note

    assert doubtful_cells("diversity") == set()
    arrows = {
        (f"table{n}/imagenet", name, "negative_flip_rate")
        for n in (5, 7)
        for name in rows_of(f"{ELODI}/table{n}/imagenet")
    }
    assert doubtful_cells(ELODI) == arrows | {
        ("table1/imagenet", "dropout", "relative_negative_flip_rate"),
        ("table1/imagenet", "bct", "relative_negative_flip_rate"),
        ("table6/imagenet", "none_rn101", "new_error"),
    }


def test_rows_that_two_tables_repeat_are_equal():
    one, two = rows_of(f"{AD}/table1/mnist"), rows_of(f"{AD}/table2/mnist")
    for first, second in (("baseline", "ensemble_2"), ("ad_0_5", "ad_2")):
        for metric, number in two[second].items():
            printed = dataclasses.replace(number, source="Table 1")
            assert one[first][metric] == printed, (first, metric)
    main = rows_of(f"{ELODI}/table1/imagenet")
    repeated = {"table8": "none", "table10": "elodi_top10", "figure6": "none"}
    for key, name in repeated.items():
        for metric, number in rows_of(f"{ELODI}/{key}/imagenet")[name].items():
            assert number.mean == main[name][metric].mean, (key, metric)


def test_a_table_or_a_file_that_is_not_there_is_none():
    assert table(f"{PAPER}/table2/cifar") is table("x/y") is published("") is None


def test_what_the_third_papers_table_derives_follows_from_what_is_printed():
    rows = rows_of("diversity/table1/cifar100")
    # Accuracy is printed in per cent, the ECE as a fraction: 7.2 %.
    assert (rows["kd"]["accuracy"].mean, rows["kd"]["ece"].mean) == (0.804, 0.072)
    curve = [rows[x]["calibrated_nll"].mean for x in ("teachers", "de3", "de2", "de1")]
    for name, row in rows.items():
        assert [m for m, number in row.items() if number.mark == "derived"] == ["dee"]
        size = np.interp(row["calibrated_nll"].mean, curve, [4, 3, 2, 1])
        assert row["dee"].mean == pytest.approx(size, abs=0.006), name


def test_relative_flips_follow_from_their_row_or_are_doubtful():
    for key in keys_of(ELODI):
        for name, row in rows_of(key).items():
            flips = row["negative_flip_rate"]
            assert 0.002 < flips.mean < 0.15 and flips.std is None
            if "relative_negative_flip_rate" not in row:
                continue
            independent = (1 - row["old_error"].mean) * row["new_error"].mean
            relative = row["relative_negative_flip_rate"]
            expected = pytest.approx(flips.mean / independent, abs=0.0005)
            doubtful = relative.mark == "doubtful"
            assert (relative.mean == expected) != doubtful, (key, name)

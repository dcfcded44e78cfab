"""The papers' numbers: read as printed, consistent with each other, doubts marked."""

import dataclasses

import pytest

from churn_jax.reports.published import Published, published, published_keys, table
from churn_jax.studies.presets import PRESETS, preset

PAPER = "reproducibility"
DATA = ("cifar10", "cifar100", "imagenet", "inaturalist2018", "svhn")
WHOLE = [k for k in published_keys() if k.split("/")[1] in ("table2", "table7")]


def test_every_table_of_the_first_paper_is_there():
    tables = [key.split("/")[1] for key in published_keys()]
    assert {f"table{n}" for n in range(1, 8)} <= set(tables)
    assert [k.split("/")[2] for k in published_keys() if "table2" in k] == list(DATA)
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
    [k for k in published_keys() if k.split("/")[1] in ("table3", "table5", "table7")],
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


def test_doubtful_cells_are_exactly_those_known():
    found = {
        (key.removeprefix(f"{PAPER}/"), method, metric)
        for key in published_keys()
        for method, row in published(key).items()
        for metric, number in row.items()
        if number.doubtful
    }
    assert found == {
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
    for key in published_keys():
        for method, row in published(key).items():
            for metric, number in row.items():
                assert (number.std is None) == (metric in settings), (key, method)
                if number.std is not None:
                    assert 0 < number.std < 0.1 and 0 < number.mean < 1, (key, method)


@pytest.mark.parametrize("name", [n for n in PRESETS if preset(n).published])
def test_presets_name_published_tables_and_their_rows(name):
    config = preset(name)
    rows = published(config.published)
    named = {spec.name for spec in config.methods}
    paper_only = set(rows) - named
    # Two columns of Table 6 cannot be assigned to rows.
    assert paper_only == ({"column2", "column3"} if "table6" in name else set())


def test_a_wrong_key_names_the_closest():
    with pytest.raises(ValueError, match="did you mean reproducibility/table2/cifar10"):
        published("reproducibility/table2/cifar")
    with pytest.raises(ValueError, match="no published table 'x'"):
        published("x")
    assert table(f"{PAPER}/table1/cifar10").runs == 5

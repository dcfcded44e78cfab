"""A project's own test of a model update, run by pytest with its other tests."""

from churn_compare.testing import assert_compatible


def test_the_new_model_may_replace_the_old_one():
    assert_compatible(
        "predictions/old.csv",
        "predictions/new.parquet",
        slices="predictions/slices.csv",
        max_nfr="2%",
        max_slice_nfr="4%",
        min_accuracy_gain="-1%",
    )

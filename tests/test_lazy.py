"""Names that are loaded on first use."""

import importlib
import inspect
import pickle
import pkgutil

import cloudpickle
import pytest

import churn_jax
from churn_jax import metrics


def test_second_names_of_the_field_are_the_same_functions():
    assert metrics.ece is metrics.expected_calibration_error
    assert metrics.nll is metrics.negative_log_likelihood
    assert metrics.disagreement is metrics.churn
    assert metrics.nfr is metrics.negative_flip_rate
    assert metrics.pfr is metrics.positive_flip_rate


def test_a_typing_error_leads_to_the_closest_name_and_nonsense_to_none():
    with pytest.raises(AttributeError, match=r"'acuracy'; did you mean accuracy or"):
        getattr(metrics, "acuracy")  # noqa: B009
    with pytest.raises(AttributeError, match=r"'metric'; did you mean metrics\?"):
        getattr(churn_jax, "metric")  # noqa: B009
    for name in ("xyzzy", "_chrun", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(metrics, name)


PACKAGES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(churn_jax.__path__, "churn_jax.")
    if found.ispkg
]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_a_name_comes_before_the_file_of_its_name(package):
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(found.name)
    for name in package.__all__:
        assert not inspect.ismodule(getattr(package, name)), name


def test_a_package_can_be_pickled_with_a_function_that_uses_it():
    assert pickle.loads(cloudpickle.dumps(lambda: metrics))() is metrics


def test_packages_need_no_import_of_their_own():
    for name in ("losses", "metrics", "methods", "training"):
        assert getattr(churn_jax, name).__name__ == f"churn_jax.{name}"
        assert name in dir(churn_jax)

"""Names that users of other libraries try lead to what is meant."""

import pickle

import pytest

import churn_jax
from churn_jax import data, losses, methods, metrics
from churn_jax.other_names import OTHER_NAMES


def test_second_names_of_the_field_are_the_same_functions():
    assert metrics.ece is metrics.expected_calibration_error
    assert metrics.nll is metrics.negative_log_likelihood
    assert metrics.disagreement is metrics.churn
    assert metrics.nfr is metrics.negative_flip_rate
    assert metrics.pfr is metrics.positive_flip_rate


@pytest.mark.parametrize(
    ("package", "name", "meant"),
    [
        (
            losses,
            "elodi",
            "losses.logit_difference_inhibition or churn_jax.methods.ELO",
        ),
        (
            losses,
            "kl_div",
            "losses.distillation_kl or churn_jax.metrics.kl_prediction_",
        ),
        (losses, "SymmetricKL", "losses.symmetric_kl"),
        (
            losses,
            "BCT_loss",
            "losses.backward_compatible or churn_jax.methods.Backward",
        ),
        (metrics, "roc_auc_score", "metrics.roc_auc"),
        (metrics, "ECE", "metrics.expected_calibration_error"),
        (data, "from_arrays", "data.Dataset.from_arrays"),
        (losses, "churn", "metrics.churn"),
        (metrics, "kl_div", "metrics.kl_prediction_difference or churn_jax.losses.dis"),
        (metrics, "calibration_error", "metrics.expected_calibration_error"),
        (
            methods,
            "Elodi",
            "methods.ELODI or churn_jax.losses.logit_difference_inhibiti",
        ),
        (methods, "batch_ensemble", "models.BatchEnsemble"),
        (data, "LoadDigits", "data.load_digits"),
        (churn_jax, "churn", "metrics.churn"),
    ],
)
def test_another_name_leads_to_ours(package, name, meant):
    message = f"no attribute '{name}'; did you mean churn_jax.{meant}"
    with pytest.raises(AttributeError, match=message):
        getattr(package, name)


def test_a_typing_error_leads_to_the_closest_name_and_nonsense_to_none():
    with pytest.raises(AttributeError, match=r"'acuracy'; did you mean accuracy or"):
        getattr(metrics, "acuracy")  # noqa: B009
    with pytest.raises(AttributeError, match=r"'metric'; did you mean metrics\?"):
        getattr(churn_jax, "metric")  # noqa: B009
    for name in ("xyzzy", "_chrun", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'$"):
            getattr(metrics, name)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_every_other_name_is_of_something_public(name):
    assert name == name.lower().replace("_", "")
    for meant in OTHER_NAMES[name].split():
        part, public, *inside = meant.split(".")
        package = getattr(churn_jax, part)
        assert public in package.__all__
        assert all(hasattr(getattr(package, public), one) for one in inside)
        assert name != public.lower().replace("_", "")  # found without an entry


def test_a_call_of_a_file_names_its_functions():
    from churn_jax.losses import codistillation
    from churn_jax.methods import elodi

    message = "codistillation is a module, not a function; did you mean churn_jax.losse"
    for call in (codistillation, losses.codistillation):
        with pytest.raises(TypeError, match=rf"{message}.* or churn_jax.losses.symmet"):
            call([0.0], [0.0])
    for call, meant in ((elodi, "methods.ELODI"), (data.digits, "data.load_digits")):
        with pytest.raises(TypeError, match=rf"did you mean churn_jax.{meant}\?$"):
            call()
    with pytest.raises(TypeError, match=r"churn_jax.metrics is a module, not a funct"):
        metrics()


def test_a_package_can_be_pickled_with_a_function_that_uses_it():
    assert pickle.loads(pickle.dumps(metrics)) is metrics


def test_packages_need_no_import_of_their_own():
    for name in ("losses", "metrics", "methods", "training"):
        assert getattr(churn_jax, name).__name__ == f"churn_jax.{name}"
        assert name in dir(churn_jax)

"""What a name of another library is called here, for messages about unknown names.

Imported only when a name was not found, so that it costs nothing otherwise.
"""

import functools
from pathlib import Path

from churn_jax.equations import exported_names
from churn_jax.registry import did_you_mean, one_of

__all__ = ["OTHER_NAMES", "name_hint"]

_ROOT = Path(__file__).parent
_PACKAGES = (
    "losses",
    "metrics",
    "methods",
    "ensembles",
    "models",
    "data",
    "perturbations",
    "analysis",
    "training",
    "studies",
    "reports",
)

# In lower case without underscores: `BatchEnsemble` and `batch_ensemble` are one entry.
OTHER_NAMES = {
    # losses
    "bct": "losses.backward_compatible methods.BackwardCompatible",
    "crossentropyloss": "losses.cross_entropy",
    "decorrelation": "losses.correlation_penalty",
    "distillation": "losses.distillation_kl methods.EnsembleDistillation",
    "elodi": "losses.logit_difference_inhibition",
    "fdkl": "losses.focal_kl",
    "fdlm": "losses.focal_logit_matching",
    "focalloss": "losses.focal",
    "kd": "losses.distillation_kl methods.EnsembleDistillation",
    "kl": "losses.distillation_kl metrics.kl_prediction_difference",
    "kldiv": "losses.distillation_kl metrics.kl_prediction_difference",
    "kldivergence": "losses.distillation_kl metrics.kl_prediction_difference",
    "knowledgedistillation": "losses.distillation_kl methods.EnsembleDistillation",
    "ldi": "losses.logit_difference_inhibition methods.ELODI",
    "mse": "losses.squared_error",
    "nllloss": "losses.cross_entropy metrics.negative_log_likelihood",
    "skl": "losses.symmetric_kl",
    "smoothlabels": "losses.label_smoothing",
    "softmaxcrossentropy": "losses.cross_entropy",
    "softmaxcrossentropywithintegerlabels": "losses.cross_entropy",
    # metrics
    "accuracyscore": "metrics.accuracy",
    "auc": "metrics.roc_auc",
    "auroc": "metrics.roc_auc",
    "backwardcompatibility": "metrics.backward_error_compatibility "
    "metrics.backward_trust_compatibility losses.backward_compatible",
    "bec": "metrics.backward_error_compatibility",
    "brier": "metrics.brier_score",
    "brierscoreloss": "metrics.brier_score",
    "btc": "metrics.backward_trust_compatibility",
    "calibrationerror": "metrics.expected_calibration_error",
    "dee": "metrics.deep_ensemble_equivalent",
    "jensenshannon": "metrics.js_prediction_difference",
    "js": "metrics.js_prediction_difference",
    "jsdivergence": "metrics.js_prediction_difference",
    "predictiveentropy": "metrics.prediction_entropy",
    "predictivemultiplicity": "metrics.ambiguity",
    "relativenfr": "metrics.relative_negative_flip_rate",
    "rocaucscore": "metrics.roc_auc",
    "temperaturescaling": "metrics.fit_temperature ensembles.with_temperature",
    "zerooneloss": "metrics.error_rate",
    # methods
    "bagging": "methods.ERM",
    "deepensemble": "methods.ERM metrics.deep_ensemble_equivalent",
    "ensembledistributiondistillation": "losses.dirichlet_nll",
    "pctraining": "methods.FocalDistillation",
    # data
    "loaddataset": "data.load",
    "loadtfds": "data.load",
}


def name_hint(package: str, name: str) -> str:
    """`; did you mean churn_jax.losses.l1?`, or nothing where no name is close.

    Args:
        package: in which the name was not found, such as `churn_jax.losses`.
        name: as it was written.

    Example:
        >>> name_hint("churn_jax.losses", "fd_kl")
        '; did you mean churn_jax.losses.focal_kl?'
    """
    if name.startswith("_"):  # Python and its tools look for these
        return ""
    plain = _plain(name)
    parts = dict.fromkeys((package, *(f"churn_jax.{part}" for part in _PACKAGES)))
    every = [f"{part}.{other}" for part in parts for other in _exports(part)]
    found = [one for one in every if _plain(one.rpartition(".")[2]) == plain]
    found += [f"churn_jax.{other}" for other in OTHER_NAMES.get(plain, "").split()]
    found.sort(key=lambda one: not one.startswith(f"{package}."))
    if found:
        return f"; did you mean {one_of(found)}?"
    return did_you_mean(name, _exports(package), cutoff=0.6)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


@functools.cache
def _exports(package: str) -> tuple[str, ...]:
    """`__all__` of a package, without importing it."""
    path = _ROOT.joinpath(*package.split(".")[1:], "__init__.py")
    return tuple(exported_names(path))

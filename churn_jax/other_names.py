"""What a name of another library is called here, for messages about unknown names.

Imported only when a name was not found, so that it costs nothing otherwise.
"""

import functools
from pathlib import Path

from churn_compare.suggestions import did_you_mean, one_of
from churn_jax.equations import exported_names

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

# In lower case, without underscores and the endings below: `BatchEnsemble` and
# `batch_ensemble` are one entry.
OTHER_NAMES = {
    # losses
    "antidistillation": "losses.correlation_penalty",
    "bct": "losses.backward_compatible methods.BackwardCompatible",
    "bce": "losses.cross_entropy losses.binary_logits",
    "binarycrossentropy": "losses.cross_entropy losses.binary_logits",
    "codistillation": "losses.symmetric_kl losses.l1",
    "confidencepenalty": "losses.entropy methods.MinimumEntropy",
    "decorrelation": "losses.correlation_penalty",
    "distill": "losses.distillation_kl methods.EnsembleDistillation",
    "distillation": "losses.distillation_kl methods.EnsembleDistillation",
    "elodi": "losses.logit_difference_inhibition",
    "entropyregularization": "losses.entropy methods.MinimumEntropy",
    "fd": "losses.focal_kl methods.FocalDistillation",
    "fdkl": "losses.focal_kl",
    "fdlm": "losses.focal_logit_matching",
    "kd": "losses.distillation_kl methods.EnsembleDistillation",
    "kl": "losses.distillation_kl metrics.kl_prediction_difference",
    "kldiv": "losses.distillation_kl metrics.kl_prediction_difference",
    "knowledgedistillation": "losses.distillation_kl methods.EnsembleDistillation",
    "ldi": "losses.logit_difference_inhibition methods.ELODI",
    "mse": "losses.squared_error",
    "mutuallearning": "losses.symmetric_kl methods.Codistillation",
    "nll": "losses.cross_entropy metrics.negative_log_likelihood",
    "sigmoidbinarycrossentropy": "losses.cross_entropy losses.binary_logits",
    "skl": "losses.symmetric_kl",
    "smoothlabels": "losses.label_smoothing",
    "softmaxcrossentropy": "losses.cross_entropy",
    "softmaxcrossentropywithintegerlabels": "losses.cross_entropy",
    # metrics
    "agreement": "metrics.churn",
    "auc": "metrics.roc_auc",
    "auroc": "metrics.roc_auc",
    "backwardcompatibility": "metrics.backward_error_compatibility "
    "metrics.backward_trust_compatibility "
    "losses.backward_compatible methods.BackwardCompatible",
    "bec": "metrics.backward_error_compatibility",
    "brier": "metrics.brier_score",
    "btc": "metrics.backward_trust_compatibility",
    "calibrationerror": "metrics.expected_calibration_error",
    "churnmatrix": "metrics.pairwise",
    "dee": "metrics.deep_ensemble_equivalent",
    "disagreement": "metrics.churn",
    "ece": "metrics.expected_calibration_error",
    "entropy": "metrics.prediction_entropy",
    "hamming": "metrics.hamming_prediction_difference",
    "jackknife": "analysis.jackknife_stderr",
    "jensenshannon": "metrics.js_prediction_difference",
    "js": "metrics.js_prediction_difference",
    "jsd": "metrics.js_prediction_difference",
    "l1": "metrics.l1_distance",
    "margin": "metrics.prediction_confidence",
    "mcnemar": "analysis.mcnemar_exact",
    "multiplicity": "metrics.ambiguity",
    "negativeflipimpact": "metrics.relative_negative_flip_rate",
    "nfi": "metrics.relative_negative_flip_rate",
    "nfr": "metrics.negative_flip_rate",
    "pairwisechurn": "metrics.pairwise",
    "pairwisedisagreement": "metrics.pairwise",
    "pd": "metrics.prediction_difference",
    "pfr": "metrics.positive_flip_rate",
    "predictionchurn": "metrics.churn",
    "predictivechurn": "metrics.churn",
    "predictiveentropy": "metrics.prediction_entropy",
    "predictivemultiplicity": "metrics.ambiguity",
    "relativenfr": "metrics.relative_negative_flip_rate",
    "relativepd": "metrics.relative_prediction_difference",
    "temperaturescaling": "metrics.fit_temperature ensembles.with_temperature",
    "totalvariation": "metrics.l1_distance",
    "ttest": "analysis.paired_t_test",
    "zeroone": "metrics.error_rate",
    # methods and ensembles
    "bagging": "methods.ERM",
    "baseline": "methods.ERM",
    "bcwi": "ensembles.interpolate_weights",
    "bu": "methods.BayesianUpdate",
    "deepensemble": "methods.ERM metrics.deep_ensemble_equivalent",
    "dml": "methods.Codistillation losses.symmetric_kl",
    "end2": "methods.EnsembleDistributionDistillation losses.dirichlet_nll",
    "ensemble": "methods.ERM",
    "meanlogits": "ensembles.average_logits",
    "meanprobs": "ensembles.average_probs",
    "modelsoup": "ensembles.interpolate_weights",
    "onetoone": "methods.OneToOneDistillation",
    "pct": "methods.FocalDistillation",
    "pctraining": "methods.FocalDistillation",
    # data and models
    "cifar10": "data.load",
    "dataloader": "data.load",
    "fromarrays": "data.Dataset.from_arrays",
    "fromhf": "data.from_source",
    "fromhuggingface": "data.from_source",
    "fromnumpy": "data.Dataset.from_arrays",
    "fromtensorslices": "data.Dataset.from_arrays",
    "fromtfds": "data.from_source",
    "getmodel": "models.create",
    "loadcifar10": "data.load",
    "loaddataset": "data.load",
    "loadmnist": "data.load",
    "loadtfds": "data.load",
    "mnist": "data.load",
}
_ENDINGS = ("loss", "score", "rate", "divergence", "penalty")


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
    wanted = {plain, *(plain.removesuffix(end) for end in _ENDINGS)}
    parts = dict.fromkeys((package, *(f"churn_jax.{part}" for part in _PACKAGES)))
    every = [f"{part}.{other}" for part in parts for other in _exports(part)]
    found = [one for one in every if _plain(one.rpartition(".")[2]) in wanted]
    for other in sorted(wanted & OTHER_NAMES.keys()):
        found += [f"churn_jax.{one}" for one in OTHER_NAMES[other].split()]
    found = sorted(
        dict.fromkeys(found), key=lambda one: not one.startswith(f"{package}.")
    )
    if found:
        return f"; did you mean {one_of(found)}?"
    own = _PACKAGES if package == "churn_jax" else _exports(package)
    return did_you_mean(name, own, cutoff=0.7)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


@functools.cache
def _exports(package: str) -> tuple[str, ...]:
    """`__all__` of a package, without importing it."""
    path = _ROOT.joinpath(*package.split(".")[1:], "__init__.py")
    return tuple(exported_names(path))

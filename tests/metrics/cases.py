"""The table of metrics that the shared tests run through."""

import dataclasses
import functools
import operator
from collections.abc import Callable

import numpy as np

from churn_jax import metrics
from churn_jax.metrics.state import masked_mean
from tests import reference_metrics as ref

N, C, M = 48, 5, 4


def make_inputs(kind, seed=0, n=N):
    """Float32 logits of related models and labels that they often get right."""
    rng = np.random.default_rng(seed)
    classes = 2 if kind in ("binary models", "clicks") else C
    base = 2 * rng.normal(size=(n, classes))

    def model():
        return (base + rng.normal(size=base.shape)).astype(np.float32)

    labels = np.argmax(base + 2 * rng.normal(size=base.shape), -1).astype(np.int32)
    names = {"pair": ("logits_a", "logits_b"), "update": ("old_logits", "new_logits")}
    names["members"] = ("member_logits",)
    inputs = {
        name: np.stack([model() for _ in range(M)]) if has_models(kind) else model()
        for name in names.get(kind.removeprefix("labelled "), ("logits",))
    }
    labelled = kind.startswith("labelled") or kind in ("clicks", "update")
    return inputs | ({"labels": labels} if labelled else {})


def is_floating(name):
    """Logits, as opposed to labels and masks."""
    return "logits" in name


def has_models(kind):
    """True if the logits have a leading axis of models, or of an ensemble's members."""
    return kind.endswith(("models", "members"))


def example_axis(name, kind):
    return 1 if is_floating(name) and has_models(kind) else 0


def take(inputs, kind, index):
    """The examples at `index` of every input."""
    return {k: np.take(v, index, example_axis(k, kind)) for k, v in inputs.items()}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    kind: str
    function: Callable
    reference: Callable
    empty: Callable | None  # () -> State
    select: tuple[str, ...] = ()  # fields of what the State computes
    at_least: int = 2  # models, where there is an axis of them
    differentiable: bool = False
    class_symmetric: bool = True
    shift_invariant: bool = True
    distance: bool = False  # of models: 0 where they are equal, in any order

    @property
    def any_classes(self):
        """Classes can be added to its logits."""
        free = self.class_symmetric and self.shift_invariant
        return free and self.name != "calibrated_scores"

    def compute(self, state):
        value = state.compute()
        return operator.attrgetter(*self.select)(value) if self.select else value

    def __str__(self):
        return self.name


def _case(name, kind, state=None, settings=None, **flags):
    settings = settings or {}
    function, reference = getattr(metrics, name), getattr(ref, name)
    if settings:
        function = functools.partial(function, **settings)
        reference = functools.partial(reference, **settings)
        name = f"{name}-{next(iter(settings.values()))}"
    empty = functools.partial(state.empty, **settings) if state else None
    return Case(name, kind, function, reference, empty, **flags)


def _spread_case(prefix, kind="models", differentiable=True, order=None, **flags):
    """One of the differences of models from their mean."""
    name = f"{prefix.lower()}_prediction_difference".lstrip("_")
    state = getattr(metrics, f"{prefix}PredictionDifferenceState")
    settings = {"order": order} if order else None
    flags = {"differentiable": differentiable, "distance": True, **flags}
    return _case(name, kind, state, settings, **flags)


def _mean_case(name, kind, state, **flags):
    """A per-example quantity, tested through its mean."""
    per_example, reference = getattr(metrics, name), getattr(ref, name)

    def function(*args, mask=None, **inputs):
        return masked_mean(per_example(*args, **inputs), mask)

    def mean_reference(**inputs):
        return np.mean(reference(**inputs))

    empty = state.empty if state else None
    return Case(name, kind, function, mean_reference, empty, **flags)


def _binned_auc_case(**settings):
    """A histogram of scores has no function of whole arrays but its own State."""

    def function(logits, labels, mask=None):
        state = metrics.AUCState.empty(**settings)
        return state.update(logits, labels, mask).compute()

    return Case(
        "AUCState",
        "clicks",
        function,
        functools.partial(ref.binned_roc_auc, **settings),
        functools.partial(metrics.AUCState.empty, **settings),
        class_symmetric=False,
        shift_invariant=False,  # up to rounding, which moves a score across an edge
    )


def _calibrated_case():
    """One validation split for every test, which no mask or shift of theirs touches."""
    validation = make_inputs("labelled", seed=100)
    fixed = {f"validation_{name}": value for name, value in validation.items()}

    def function(logits, labels, mask=None):
        return metrics.calibrated_scores(logits, labels, mask=mask, **fixed)[1:]

    def reference(logits, labels):
        return ref.calibrated_scores(logits, labels, **fixed)[1:]

    return Case("calibrated_scores", "labelled", function, reference, empty=None)


def _diversity_by_confidence_case():
    """What adds up; counts are not numbers that could be nan, quartiles no sums."""
    select = ("bin_mean_kl", "mean_kl")

    def function(member_logits, mask=None):
        found = metrics.diversity_by_confidence(member_logits, 6, mask)
        return found.bin_mean_kl, found.mean_kl

    def reference(member_logits):
        _, means, _, mean = ref.diversity_by_confidence(member_logits, 6)
        return means, mean

    empty = functools.partial(metrics.DiversityByConfidenceState.empty, num_bins=6)
    name = "diversity_by_confidence"
    return Case(name, "members", function, reference, empty, select)


def _flip_case(index, name):
    def reference(**inputs):
        return ref.flip_rates(**inputs)[index]

    empty = metrics.FlipState.empty
    return Case(name, "update", getattr(metrics, name), reference, empty, (name,))


SMOOTH = {"differentiable": True}
DISTANCE = {"distance": True}
BOTH = SMOOTH | DISTANCE
CASES = [
    _case("accuracy", "labelled", metrics.AccuracyState),
    _case("error_rate", "labelled", metrics.ErrorRateState),
    _case("negative_log_likelihood", "labelled", metrics.NLLState, **SMOOTH),
    _case("brier_score", "labelled", metrics.BrierState, **SMOOTH),
    _case("expected_calibration_error", "labelled", metrics.ECEState),
    _case("expected_calibration_error", "labelled", metrics.ECEState, {"num_bins": 4}),
    _case("roc_auc", "clicks", class_symmetric=False),
    _binned_auc_case(num_bins=30, limit=5.0),
    _case(
        "calibration_ratio",
        "clicks",
        metrics.CalibrationRatioState,
        differentiable=True,
        class_symmetric=False,
    ),
    _case("churn", "pair", metrics.ChurnState, **DISTANCE),
    *(
        _case("surrogate_churn", "pair", metrics.SurrogateChurnState, settings, **BOTH)
        for settings in (None, {"alpha": 3.0})
    ),
    _case("churn_by_correctness", "labelled pair", metrics.ChurnByCorrectnessState),
    _case("churn_bound_from_errors", "labelled pair"),
    _case("churn_bound_from_confidence", "pair", **DISTANCE),
    _case("churn_bound_from_confidence_sum", "pair", **DISTANCE),
    _mean_case("prediction_confidence", "one", metrics.ConfidenceState, **SMOOTH),
    _mean_case("prediction_entropy", "one", metrics.EntropyState, **SMOOTH),
    _mean_case("l1_distance", "pair", metrics.L1DistanceState, **BOTH),
    _mean_case("ambiguity", "models", state=None, **DISTANCE),
    _mean_case("rashomon_capacity", "models", state=None, **SMOOTH),
    *(_spread_case("", order=order) for order in (1, 2, 3.5, float("inf"))),
    _spread_case("Weighted"),
    _spread_case("KL"),
    _spread_case("JS"),
    _spread_case("Relative"),
    _spread_case("Positive", "binary models", class_symmetric=False),
    _spread_case("Label", "labelled models"),
    _spread_case("Hamming", differentiable=False),
    _calibrated_case(),
    _diversity_by_confidence_case(),
    _case("member_diversity", "labelled members", metrics.MemberDiversityState),
    _case("ensemble_reference_curve", "labelled members", at_least=1),
    *(_flip_case(i, name) for i, name in enumerate(metrics.FlipRates._fields)),
]
# One case per State class and setting that changes its arithmetic.
STREAMED = list({type(c.empty()): c for c in reversed(CASES) if c.empty}.values())

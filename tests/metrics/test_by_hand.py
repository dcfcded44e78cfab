"""Every metric on a tiny case that was worked out by hand; the numbers are here."""

import functools

import jax
import numpy as np
import pytest

from churn_jax import metrics
from churn_jax.metrics.diversity import MemberDiversity

LOG2, LOG3 = np.log(2), np.log(3)
INF, NAN = np.inf, np.nan


def log(*probs):
    return np.log(np.array(probs, np.float64)).astype(np.float32)


def two_class(top):
    """Logits whose class 0 has the given probabilities `[...]`."""
    p = np.array(top)
    return log(*np.stack([p, 1 - p], -1))


def clicks(scores, labels):
    return {
        "logits": np.stack([np.zeros(len(scores)), scores], -1).astype(np.float32),
        "labels": np.array(labels),
    }


def pair(a, b, *labels):
    """Two models and labels, if any."""
    known = {"labels": np.array(labels)} if labels else {}
    return {"logits_a": np.float32(a), "logits_b": np.float32(b), **known}


def update(old, new, labels=None):
    labels = np.zeros(len(old), int) if labels is None else np.array(labels)
    return {"old_logits": old, "new_logits": new, "labels": labels}


A = log([0.5, 0.25, 0.25], [0.25, 0.5, 0.25])
B = log([0.5, 0.25, 0.25], [0.5, 0.25, 0.25])
TIE, FIRST, SECOND = [[1, 1, 0]] * 2, [[1, 0, 0]] * 2, [[0, 1, 0]] * 2
SURE = np.float32([[0.0, -1e9, -1e9, -INF]])
HALF = pair(log([0.5, 0.25, 0.25]), log([0.25, 0.25, 0.5]))
# Float32 cannot tell these probabilities apart.
CLOSE = pair([[1.0, 1.0]], [[1.0, np.nextafter(np.float32(1), np.float32(2))]])

ONE_HOT = np.eye(4, dtype=np.float32)
# Labels 0. Both right: 3, negative flips: 1, positive flips: 2, both wrong: 2.
# ER_old = 4/8, ER_new = 3/8: (1/8) / (1/2 * 3/8) = 2/3
FLIPS = update(ONE_HOT[[0, 0, 0, 0, 1, 2, 1, 3]], ONE_HOT[[0, 0, 0, 2, 0, 0, 1, 1]])
# Every combination of right and wrong, in proportion 3:1 by 1:1.
INDEPENDENT = update(ONE_HOT[[0, 0, 0, 1] * 2], ONE_HOT[[0] * 4 + [1] * 4])
NEVER_RIGHT = update(ONE_HOT[[1] * 8], ONE_HOT[[0] * 8])  # groups without examples
# A flip to the last class, no flip, wrong before and after.
RANKS = update(
    np.float32([[4, 1, 3, 2], [4, 1, 3, 2], [1, 4, 0, 0]]), ONE_HOT[[1, 0, 2]]
)

# Two models, one example; mean (1/2, 1/4, 1/4), differences +-(1/4, -1/8, -1/8), which
# Delta_w weighs by (1/2, 1/4, 1/4).
MODELS = log([[0.75, 0.125, 0.125]], [[0.25, 0.375, 0.375]])
# (3/4, 1/4) and (1/4, 3/4), mean (1/2, 1/2).
BINARY = two_class([[0.75], [0.25]])
CERTAIN = np.float32(50) * np.eye(3, dtype=np.float32)[:, None]  # of three classes
# e^-200 and e^-201 of class 1: 0 in float32, yet their ratio is e.
TINY = np.float32([[[0.0, -200.0]], [[0.0, -201.0]]])
ONE_TINY = np.float32([[[0.0, -200.0]], [[0.0, 0.0]]])
ONE_NEVER = np.float32([[[0.0, -INF]], [[0.0, 0.0]]])
OTHER = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
PROBABLE = {"member_logits": log([[0.5, 0.5]], [[0.25, 0.75]]), "labels": np.array([0])}

PROBS = log([0.5, 0.25, 0.25], [0.125, 0.75, 0.125])
NEVER = np.float32([[0.0, -INF, -INF]] * 2)
# Right 3 times in 4: log 3 = 2 / T, and then the probability is 3/4.
QUARTER = np.float32([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1])
ON_ITSELF = dict(zip(("validation_logits", "validation_labels"), QUARTER))
# Positives 1, 2, 2; negatives 0, 2: of six pairs 1 > 0, 2 > 0, 2 > 0, 1 < 2 and two
# ties, 3 + 2 / 2 = 4.
CLICKS = clicks([2.0, 0.0, 1.0, 2.0, 2.0], [1, 0, 1, 0, 1])
VOTES = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 1, 3]]).T  # [run, example]
SURER = 10 * ONE_HOT
CHANNEL = np.stack([4 * SURER[[0, 0, 0]], 4 * SURER[[0, 1, 1]], 4 * SURER[[0, 1, 2]]])


def of(name, inputs, expected, rtol=1e-6, **settings):
    """A row: the metric with its settings, its inputs, and what is expected."""
    metric = functools.partial(getattr(metrics, name), **settings)
    if not isinstance(inputs, dict):
        inputs = {"logits": np.asarray(inputs)}
    label = ",".join([name, *(f"{k}={v}" for k, v in settings.items())])
    return pytest.param(metric, inputs, expected, rtol, id=label)


def labelled(logits, *labels):
    return {"logits": np.float32(logits), "labels": np.array(labels)}


ROWS = [
    of("churn", pair(A, B), 0.5),
    of("churn", pair(TIE, FIRST), 0.0),  # as argmax orders them
    of("churn", pair(TIE, SECOND), 1.0),
    # Second example: |1/2 - 1| + |1 - 1/2| + |1/2 - 1/2| = 1; halved, then averaged.
    of("surrogate_churn", pair(A, B), 0.25),
    of("surrogate_churn", pair(A, B), 0.375, alpha=2.0),  # |1/4 - 1| + |1 - 1/4| = 1.5
    # The groups are those of the first model. A: right, wrong; B: both right.
    of("churn_by_correctness", pair(A, B, 0, 0), (0.0, 1.0)),
    of("churn_by_correctness", pair(B, A, 0, 0), (0.5, 0.0)),
    of("prediction_confidence", log([0.5, 0.25, 0.25]), [0.25]),
    of("prediction_confidence", SURE, [1.0]),
    of("prediction_confidence", np.zeros((1, 4), np.float32), [0.0]),
    of("prediction_entropy", log([0.5, 0.25, 0.25]), [1.5 * LOG2]),
    of("prediction_entropy", SURE, [0.0]),
    of("prediction_entropy", np.zeros((1, 4), np.float32), [2 * LOG2]),
    of("l1_distance", HALF, [0.5]),
    of("l1_distance", pair(SURE, SURE[:, ::-1]), [2.0]),
    of("churn_bound_from_errors", HALF | {"labels": np.array([0])}, 1.0),
    of("churn_bound_from_confidence", HALF, 1.0),  # .5 > .25
    of("churn_bound_from_confidence_sum", HALF, 1.0),  # .5 >= .5
    of("churn_bound_from_confidence", CLOSE, 1.0),
    of("churn_bound_from_confidence_sum", CLOSE, 1.0),
    of("flip_rates", FLIPS, (1 / 8, 2 / 8, 2 / 3, 3 / 4, 2 / 3)),
    of("flip_rates", INDEPENDENT, (3 / 8, 1 / 8, 1.0, 1 / 2, 1 / 4)),
    of("flip_rates", NEVER_RIGHT, (0.0, 1.0, 0.0, 1.0, 1.0)),
    of("flip_rank", RANKS, [4, 0, 0]),
    of("ambiguity", ONE_HOT[VOTES], [0, 2 / 3, 1, 1]),
    # Two classes have a largest one.
    of("ambiguity", ONE_HOT[np.arange(4) % 2][:, None], [2 / 3]),
    of("ambiguity", ONE_HOT[np.arange(5) % 2][:, None], [0.6]),
    of("rashomon_capacity", CHANNEL, [1.0, 2.0, 3.0]),
    of("rashomon_capacity", np.stack([PROBS] * 3), [1.0, 1.0]),
    of("prediction_difference", MODELS, 0.5),
    of("prediction_difference", MODELS, np.sqrt(1 / 16 + 2 / 64), order=2),
    of("prediction_difference", MODELS, 0.25, order=INF),
    of("prediction_difference", np.full((2, 48, 257), NAN, "f4"), NAN, order=INF),
    of("weighted_prediction_difference", MODELS, 3 / 16),
    of("weighted_prediction_difference", MODELS, np.sqrt(1 / 64 + 2 / 1024), order=2),
    of("weighted_prediction_difference", MODELS, 1 / 8, order=INF),
    # 1/4 / (1/2) + 2 * 1/8 / (1/4)
    of("relative_prediction_difference", MODELS, 1.5),
    of("label_prediction_difference", labelled(MODELS, 0), 0.5),
    of("label_prediction_difference", labelled(MODELS, -1), NAN),
    of("hamming_prediction_difference", MODELS, 1.0),
    of("positive_prediction_difference", BINARY, 1.0),  # (1/4 + 1/4) / (1/2)
    of(
        "positive_prediction_difference",
        TINY,
        2 * abs(1 - 2 / (1 + np.exp(-1.0))),
        1e-5,
    ),
    # KL((3/4, 1/4) || (1/4, 3/4)) = 1/2 log 3 both ways, and 0 where both are equal.
    of("pairwise_kl", two_class([[0.75, 0.6], [0.25, 0.6]]), [0.5 * LOG3, 0.0]),
    of("kl_prediction_difference", BINARY, 0.5 * LOG3),
    of("kl_prediction_difference", CERTAIN, 50.0),
    of("kl_prediction_difference", ONE_TINY, 0.5 * (100 + LOG2 - LOG2)),
    of("js_prediction_difference", BINARY, 0.75 * np.log(1.5) + 0.25 * np.log(0.5)),
    of("js_prediction_difference", CERTAIN, LOG3),  # the largest value
    of("kl_prediction_difference", ONE_NEVER, INF),
    *(
        of("js_prediction_difference", models, 0.5 * (-np.log(0.75) + OTHER))
        for models in (ONE_TINY, ONE_NEVER)
    ),
    of("ensemble_reference_curve", PROBABLE, [1.5 * LOG2, -np.log(0.375)]),
    of(
        "ensemble_reference_curve", PROBABLE, [LOG2, -np.log(0.375)], subsets="prefixes"
    ),
    of("accuracy", labelled(PROBS, 0, 2), 0.5),
    of("accuracy", labelled(np.zeros((2, 3)), 0, 1), 0.5),  # a tie: the lower class
    of("error_rate", labelled(PROBS, 0, 2), 0.5),
    of("negative_log_likelihood", labelled(PROBS, 0, 2), 2 * LOG2),  # (log 2 + log 8)/2
    of("negative_log_likelihood", labelled(PROBS, 0, 3), NAN),
    of("negative_log_likelihood", labelled(NEVER, 1, 2), INF),
    # (.25 + .0625 + .0625 + .015625 + .5625 + .765625) / 2
    of("brier_score", labelled(PROBS, 0, 2), 0.859375),
    of("brier_score", labelled(PROBS, 0, -1), NAN),
    of("brier_score", labelled(NEVER, 1, 2), 2.0),
    # Bins of width 1/4: (.5, .75] holds .625 and .6875, (.75, 1] holds .875 twice:
    # |1 - 1.3125| / 4 + |2 - 1.75| / 4.
    of(
        "expected_calibration_error",
        labelled(two_class([0.625, 0.6875, 0.875, 0.875]), 0, 1, 0, 0),
        0.140625,
        num_bins=4,
    ),
    of("expected_calibration_error", labelled([[100.0, 0.0]] * 3, 0, 0, 0), 0.0),
    of("expected_calibration_error", labelled([[100.0, 0.0]] * 2, 0, 2), NAN),
    of("expected_calibration_error", labelled([[100.0, 0.0]] * 2, -1, 0), NAN),
    of("expected_calibration_error", labelled([[100.0, 0.0]] * 3, 1, 1, 1), 1.0),
    of(  # the gap of the means
        "expected_calibration_error",
        labelled(two_class([0.6, 0.7, 0.9]), 0, 1, 0),
        2.2 / 3 - 2 / 3,
        num_bins=1,
    ),
    of(  # Open left, closed right: wrong at .5 and right at .75 are in different bins.
        "expected_calibration_error",
        labelled(two_class([0.5, 0.75]), 1, 0),
        (0.5 + 0.25) / 2,
        num_bins=2,
    ),
    of("roc_auc", CLICKS, 4 / 6),
    of("log_loss", labelled(PROBS, 0, 2), 2 * LOG2),
    of("calibration_ratio", labelled(two_class([0.75, 0.5, 0.25]), 0, 1, 0), 1.5),
    of(
        "calibrated_scores",
        labelled(*QUARTER[:1], *QUARTER[1]) | ON_ITSELF,
        (2 / LOG3, -0.75 * np.log(0.75) - 0.25 * np.log(0.25), 0.375, 0.0),
    ),
    of("fit_temperature", labelled(*QUARTER[:1], *QUARTER[1]), 2 / LOG3),
    of(
        "member_diversity",
        {"member_logits": BINARY, "labels": np.array([0])},
        MemberDiversity(
            mean_kl=0.5 * LOG3,
            disagreement=1.0,
            variance_share=0.125 / 0.5,
            mean_member_nll=-0.5 * np.log(0.75 * 0.25),
            ensemble_nll=LOG2,
            mean_member_accuracy=0.5,
            ensemble_accuracy=1.0,  # a tie goes to the lower class id
        ),
    ),
]
INPUTS = [row.values[1] for row in ROWS]


@functools.cache
def values():
    """Every row in one program."""
    program = jax.jit(lambda all_: [row.values[0](**x) for row, x in zip(ROWS, all_)])
    return jax.device_get(program(INPUTS))


@pytest.mark.parametrize("label", [2**32, -(2**32), 2**31, 2**40 + 1])
def test_a_label_beyond_int32_is_no_class(label):
    logits, labels = np.float32([[2, 1], [1, 2]]), np.int64([label, 1])
    for metric in (metrics.accuracy, metrics.nll, metrics.brier_score):
        assert np.isnan(metric(logits, labels))
    assert np.isnan(metrics.fit_temperature(logits, labels))


def test_labels_and_scores_that_no_temperature_fits():
    logits = np.stack([PROBS, PROBS, PROBS * np.float32([1, 1, -INF]), NEVER])
    labels = np.array([[0, -1], [0, 3], [0, 0], [0, 1]])
    found = jax.jit(jax.vmap(metrics.fit_temperature))(logits, labels)
    assert np.isnan(found).all()  # the last label is an excluded class


@pytest.mark.parametrize("row", range(len(ROWS)), ids=[row.id for row in ROWS])
def test_by_hand(row):
    rtol = ROWS[row].values[3]
    for found, expected in zip(
        jax.tree.leaves(values()[row]),
        jax.tree.leaves(ROWS[row].values[2], is_leaf=lambda x: isinstance(x, list)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-7)

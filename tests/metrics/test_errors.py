"""Inputs that do not fit; `test_every_metric.py` has what every metric refuses."""

import numpy as np
import pytest

from churn_jax import metrics
from tests.metrics.cases import make_inputs

Z, Y = make_inputs("labelled").values()
MODELS = make_inputs("members")["member_logits"]
BINARY = r"\[\.\.\., N, 2\].*\(48, 3\).*\[0, z\]"


def calibrated(z=Z, y=Y):
    return metrics.calibrated_scores(Z, Y, validation_logits=z, validation_labels=y)


def curve(z=MODELS, **options):
    return metrics.ensemble_reference_curve(z, Y, **options)


def equivalent(*curve):
    return metrics.deep_ensemble_equivalent(0.7, np.array(curve))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibrated(z=Z[:, :4]), r"classes.*\(48, 5\).*\(48, 4\)"),
        (lambda: calibrated(y=Y[1:]), r"validation_logits.*\(48,\).*\(47,\)"),
        (lambda: metrics.fit_temperature(Z, Y[1:]), r"labels.*\(48,\).*\(47,\)"),
        (lambda: metrics.expected_calibration_error(Z, Y, 0), r"num_bins.*0"),
        (lambda: metrics.diversity_by_confidence(MODELS, 0), r"num_bins.*0"),
        (lambda: metrics.AUCState.empty(0), r"num_bins.*0"),
        (lambda: metrics.AUCState.empty(8, 0.0), "limit must be positive and finite"),
        (lambda: metrics.AUCState.empty(8, np.inf), "limit must be positive and fini"),
        (lambda: metrics.AUCState.empty(8, np.nan), "limit must be positive and fini"),
        (lambda: metrics.roc_auc(Z[:, :3], Y), BINARY),
        (lambda: metrics.calibration_ratio(Z[:, :3], Y), BINARY),
        (lambda: equivalent(), r"\[M\].*0,"),
        (lambda: equivalent([0.5], [0.4]), r"\[M\].*2, 1"),
        (lambda: metrics.deep_ensemble_equivalent(0.7, 0.5), r"\[M\].*\(\)"),
        (lambda: equivalent(np.inf, 0.5), r"finite.*inf"),
        (lambda: curve(MODELS[0]), r"\[M, N, C\].*\(48, 5\)"),
        (lambda: curve(validation_logits=MODELS), "together"),
        (
            lambda: curve(validation_logits=MODELS[:3], validation_labels=Y),
            r"members.*\(4, 48.*\(3, 48, 5\)",
        ),
        (
            lambda: curve(validation_logits=MODELS[:, 1:], validation_labels=Y),
            r"validation_logits.*\(47,\).*\(48,\)",
        ),
        (lambda: curve(np.repeat(MODELS, 3, 0)[:9]), r"511 subsets.*prefixes"),
        (lambda: curve(subsets="some"), "some"),
        (lambda: metrics.prediction_difference(MODELS, 0.5), r"at least 1.*0\.5"),
        (lambda: metrics.weighted_prediction_difference(MODELS, 0), r"least 1.*0"),
        (lambda: metrics.positive_prediction_difference(MODELS), r"N, 2\].*\(4, 48"),
        (lambda: metrics.prediction_difference(MODELS[0]), r"\[M, N, C\].*\(48, 5\)"),
        (lambda: metrics.summarize_pairs(np.zeros((2, 3))), r"R, R.*\(2, 3\)"),
        (lambda: metrics.summarize_paired(np.zeros((2, 3))), r"R, R.*\(2, 3\)"),
        (lambda: metrics.summarize_cross(np.zeros(3)), r"R1, R2.*\(3,\)"),
        (
            lambda: metrics.leave_one_model_out(metrics.ambiguity, MODELS[:2]),
            r"at least three.*\(2, 48, 5\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_states_of_other_kinds_settings_and_shapes_do_not_merge():
    bins, area = metrics.ECEState, metrics.AUCState
    orders = (metrics.PredictionDifferenceState.empty(order=o) for o in (1, 2))
    for states, message in (
        ((bins.empty(5), bins.empty(4)), r"one kind.*\(5,\).*\(4,\)"),
        ((area.empty(8), area.empty(8, 4.0)), r"limit=16\.0.*limit=4\.0"),
        (orders, r"order=1.*order=2"),
        ((bins.empty(5), metrics.ChurnState.empty()), r"ECEState.*ChurnState"),
    ):
        one, two = states
        with pytest.raises(ValueError, match=message):
            one.merge(two)

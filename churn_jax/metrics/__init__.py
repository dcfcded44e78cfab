"""Quantities that evaluate predictions: functions of whole arrays, and States.

Every function takes logits `[..., C]`; every `...State` gives the same number batch by
batch and shard by shard. `pairwise` computes a metric for all pairs of runs,
`cross_pairs` for every old run and every new one.
"""

from churn_compare.lazy import load_on_use
from churn_jax.metrics.calibration import (
    ECEState,
    calibrated_scores,
    expected_calibration_error,
    fit_temperature,
)
from churn_jax.metrics.churn import (
    ChurnByCorrectnessState,
    ChurnState,
    SurrogateChurnState,
    ambiguity,
    churn,
    churn_by_correctness,
    rashomon_capacity,
    surrogate_churn,
)
from churn_jax.metrics.clicks import (
    AUCState,
    CalibrationRatioState,
    calibration_ratio,
    roc_auc,
)
from churn_jax.metrics.confidence import (
    ConfidenceState,
    EntropyState,
    L1DistanceState,
    churn_bound_from_confidence,
    churn_bound_from_confidence_sum,
    churn_bound_from_errors,
    l1_distance,
    prediction_confidence,
    prediction_entropy,
)
from churn_jax.metrics.deep_ensemble import (
    deep_ensemble_equivalent,
    ensemble_reference_curve,
)
from churn_jax.metrics.diversity import (
    DiversityByConfidenceState,
    MemberDiversityState,
    diversity_by_confidence,
    member_diversity,
)
from churn_jax.metrics.flips import (
    FlipRates,
    FlipState,
    backward_error_compatibility,
    backward_trust_compatibility,
    flip_rank,
    flip_rates,
    negative_flip_rate,
    positive_flip_rate,
    relative_negative_flip_rate,
)
from churn_jax.metrics.pair_summaries import (
    leave_one_model_out,
    summarize_cross,
    summarize_paired,
    summarize_pairs,
)
from churn_jax.metrics.pairs import cross_pairs, pairwise
from churn_jax.metrics.prediction_difference import (
    HammingPredictionDifferenceState,
    JSPredictionDifferenceState,
    KLPredictionDifferenceState,
    LabelPredictionDifferenceState,
    PositivePredictionDifferenceState,
    PredictionDifferenceState,
    RelativePredictionDifferenceState,
    WeightedPredictionDifferenceState,
    hamming_prediction_difference,
    js_prediction_difference,
    kl_prediction_difference,
    label_prediction_difference,
    pairwise_kl,
    positive_prediction_difference,
    prediction_difference,
    relative_prediction_difference,
    weighted_prediction_difference,
)
from churn_jax.metrics.scoring import (
    AccuracyState,
    BrierState,
    ErrorRateState,
    NLLState,
    accuracy,
    brier_score,
    error_rate,
    negative_log_likelihood,
)
from churn_jax.metrics.state import MeanState, RateState

# Second names of the field; but for `log_loss` only the first ones are in `__all__`.
disagreement = churn
ece = expected_calibration_error
log_loss = negative_log_likelihood
nfr = negative_flip_rate
nll = negative_log_likelihood
pfr = positive_flip_rate

__getattr__, __dir__, __all__ = load_on_use(__name__, ["log_loss"])

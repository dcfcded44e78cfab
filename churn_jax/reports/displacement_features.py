"""Displacements of features that share a space, beside those of logits."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from churn_jax.analysis import FeatureAgreement, averaged_feature_agreement
from churn_jax.reports.artefacts import ReportError
from churn_jax.reports.displacement_norms import (
    DisplacementOptions,
    Norms,
    compare_norms,
)
from churn_jax.reports.displacement_numbers import Networks

__all__ = ["FeatureNumbers", "FeatureSpace", "compare_features"]


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Features of rows that were trained to be compatible with one reference.

    Attributes:
        reference: label of the row that is the reference.
        one_reference: whether all replicas had the same reference.
        ids: `[N]` of all test examples.
        features: row to `[R, N, D]`, D at least that of the reference.
        kernel: `[D_ref, C]` of the reference's last layer.
        bias: `[C]`.
    """

    reference: str
    one_reference: bool
    ids: NDArray
    features: Mapping[str, NDArray]
    kernel: NDArray[np.float64]
    bias: NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureNumbers:
    """What is told of features.

    Attributes:
        reference: label of the row that is the reference.
        one_reference: whether all replicas had the same reference.
        norms: of the old row with itself, and with the new one.
        agreement: label of a row to how close averaged features come to averaged
            logits, with all its networks.
    """

    reference: str
    one_reference: bool
    norms: tuple[Norms, ...]
    agreement: Mapping[str, FeatureAgreement]


def compare_features(
    space: FeatureSpace,
    networks: Mapping[str, Networks],
    old: str,
    new: str,
    options: DisplacementOptions,
) -> FeatureNumbers:
    """Norms of features' displacements, and averaged features under one head.

    Args:
        space: features of `old` and `new` on all test examples.
        networks: row to its predictions.
        old: a row.
        new: another, or the same.
        options: what to compute.

    Raises:
        ReportError: features are narrower than the reference's, or of other networks or
            examples than the predictions.
    """
    features, agreement = {}, {}
    for row in dict.fromkeys((old, new)):
        own = networks[row]
        found = np.asarray(space.features[row], np.float64)
        places = np.nonzero(np.isin(space.ids, own.ids))[0]
        same = np.array_equal(space.ids[places], own.ids)
        if not same or len(found) != len(own.logits):
            raise ReportError(
                f"{row} has features of {len(found)} networks and predictions of "
                f"{len(own.logits)}, or they are of other examples"
            )
        if found.shape[-1] < len(space.kernel):
            raise ReportError(
                f"{row} has {found.shape[-1]} features, the reference "
                f"{len(space.kernel)}; compatible ones are at least as wide"
            )
        features[row] = found[:, places, : len(space.kernel)]
        agreement[own.label] = averaged_feature_agreement(
            features[row],
            own.logits,
            space.kernel[:, own.classes],
            space.bias[own.classes],
        )
    ids = networks[old].ids
    norms = [compare_norms(networks[old].label, features[old], None, ids, options)]
    if new != old:
        label = f"{networks[old].label} → {networks[new].label}"
        norms.append(compare_norms(label, features[old], features[new], ids, options))
    return FeatureNumbers(space.reference, space.one_reference, tuple(norms), agreement)

"""Features of networks that were trained to share a space, through one head.

Backward-compatible training makes the features of several networks comparable, so their
mean is a feature too. The displacements of `churn_jax.analysis` take features
`[R, N, D]` as they take logits.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike, NDArray

from churn_jax.data import Dataset
from churn_jax.studies.finished import FinishedStudy
from churn_jax.studies.inputs import StudyError
from churn_jax.typing import Array
from experiments.diversity.networks import (
    RowNetworks,
    Structure,
    over_chunks,
    to_pixels,
)


class FeatureAgreement(NamedTuple):
    """How close averaged features through one head come to averaged logits.

    Attributes:
        agreement: share of examples with the same arg max.
        distance: mean Euclidean norm of the difference of the two logits, the mean
            over classes taken off both, since it changes no prediction.
        relative_distance: the same over the mean norm of the averaged logits.
    """

    agreement: float
    distance: float
    relative_distance: float


def averaged_feature_logits(
    features: ArrayLike, head_kernel: ArrayLike, head_bias: ArrayLike
) -> NDArray[np.float64]:
    """Logits of the mean feature of several networks under the reference's head.

    `H_ref((1/R) sum_n F_n(x))`, which is near `(1/R) sum_n H_n(F_n(x))` where training
    kept the heads H_n close to the reference's.

    Args:
        features: `[R, ..., D]` of R networks.
        head_kernel: `[D_ref, C]`, last layer of the reference; of wider features the
            first D_ref columns count.
        head_bias: `[C]`.

    Returns:
        `[..., C]` float64.

    References:
        [elodi] Eq. 14 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    features = np.asarray(features, np.float64)
    kernel = np.asarray(head_kernel, np.float64)
    bias = np.asarray(head_bias, np.float64)
    if kernel.ndim != 2 or bias.shape != kernel.shape[1:]:
        raise ValueError(
            "head_kernel must be [D, C] and head_bias [C]; got "
            f"{kernel.shape} and {bias.shape}"
        )
    if features.ndim < 2 or features.shape[-1] < len(kernel) or 0 in features.shape:
        raise ValueError(
            f"features must be [R, ..., D] with at least the head's {len(kernel)} "
            f"columns; got shape {features.shape}"
        )
    return features.mean(axis=0)[..., : len(kernel)] @ kernel + bias


def averaged_feature_agreement(
    features: ArrayLike,
    logits: ArrayLike,
    head_kernel: ArrayLike,
    head_bias: ArrayLike,
) -> FeatureAgreement:
    """Compares the mean feature under the reference's head with the mean logits.

    The left side of the approximation is `(1/R) sum_n H_n(F_n(x))`, the networks' own
    logits; the right side is `averaged_feature_logits`.

    Args:
        features: `[R, N, D]` of R networks.
        logits: `[R, N, C]` of the same networks.
        head_kernel, head_bias: as in `averaged_feature_logits`; errors as there.

    Returns:
        The `FeatureAgreement`; its relative distance is nan where all logits are equal.

    References:
        [elodi] Eq. 13 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    through_head = averaged_feature_logits(features, head_kernel, head_bias)
    logits = np.asarray(logits, np.float64)
    wanted = (len(np.asarray(features)), *through_head.shape)
    if logits.ndim != 3 or logits.shape != wanted:
        raise ValueError(
            "features [R, N, D] and logits [R, N, C] must be of the same networks and "
            f"examples; got {np.shape(features)} and {logits.shape}"
        )
    averaged = logits.mean(axis=0)
    same = np.argmax(averaged, axis=-1) == np.argmax(through_head, axis=-1)
    centred = [x - x.mean(axis=-1, keepdims=True) for x in (averaged, through_head)]
    distance = np.linalg.norm(centred[0] - centred[1], axis=-1).mean()
    scale = np.linalg.norm(centred[0], axis=-1).mean()
    relative = distance / scale if scale > 0 else np.nan
    return FeatureAgreement(float(same.mean()), float(distance), float(relative))


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Features of rows that were trained to be compatible with one reference."""

    reference: str  # label of the row that is the reference
    one_reference: bool  # whether all replicas had the same reference
    ids: NDArray  # `[N]` of all test examples
    # row to `[R, N, D]`, D at least that of the reference
    features: Mapping[str, NDArray]
    kernel: NDArray[np.float64]  # `[D_ref, C]` of the reference's last layer
    bias: NDArray[np.float64]  # `[C]`


_CHUNK = 500  # examples at a time


def feature_space(
    study: FinishedStudy, reference: str, rows: Sequence[str]
) -> FeatureSpace:
    """Test features of rows, and the head of the row whose features they should be.

    Others were trained to be compatible with `reference`, whose first replica has the
    head. All its replicas should be one network, as they are with fixed seeds: else
    replicas of the others have features for several.
    """
    dataset = study.dataset
    if not isinstance(dataset, Dataset):
        raise StudyError(
            f"{study.config.data.name} is a stream; features are of data in memory"
        )
    known: dict[str, Structure] = {}
    analysed = {
        name: RowNetworks.of(spec, study.restore(spec), known)
        for name, spec in ((n, study.spec(n)) for n in (reference, *rows))
    }
    for name, row in analysed.items():
        if row.members != 1:
            raise StudyError(
                f"{name} deploys {row.members} networks; features are of one"
            )
    images = to_pixels(dataset.test.images)
    features = {}
    for name, row in analysed.items():
        stopped = study.folder.row(name).stopped_replicas
        kept = [r for r in range(study.config.train.replicas) if r not in stopped]
        features[name] = np.stack(
            [_features_of(row, name, row.replica(r), images) for r in kept]
        )
    kernel, bias = _head(analysed[reference], features[reference].shape[-1])
    return FeatureSpace(
        reference=study.spec(reference).label,
        one_reference=bool(np.all(features[reference] == features[reference][0])),
        ids=np.asarray(dataset.test.ids),
        features={name: features[name] for name in rows},
        kernel=kernel,
        bias=bias,
    )


def _features_of(row: RowNetworks, name: str, variables, images) -> np.ndarray:
    def compute(pixels):
        found = _member_features(row.structure, variables, pixels)
        if found is None:
            raise StudyError(
                f"the network of {name} does not tell its features (Outputs.features)"
            )
        return found

    return over_chunks(compute, (images,), _CHUNK, 0)


@functools.partial(jax.jit, static_argnums=0)
def _member_features(
    structure: Structure, variables: PyTree, pixels: Array
) -> Array | None:
    """`[B, D]` of the only member, float32; None where there are none."""
    outputs = structure.outputs(variables, pixels)
    if outputs.features is None:
        return None
    return outputs.features[0].astype(jnp.float32)


def _head(row: RowNetworks, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Kernel `[D, C]` and bias `[C]` of the first replica's last layer."""
    (group,) = row.structure.groups
    if (head := group.network.head) is None:
        raise StudyError(
            f"the last layer of {row.spec.name} is not known (Network.head)"
        )
    variables = jax.tree.map(lambda x: x[0], row.replica(0)[0])
    inputs = jnp.concatenate([jnp.zeros((1, width)), jnp.eye(width)])
    with jax.default_matmul_precision("highest"):
        found = np.asarray(head(variables, inputs), np.float64)
    return found[1:] - found[0], found[0]

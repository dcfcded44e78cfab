"""Features of the rows of a finished study, and the head of their reference."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax.data import Dataset
from churn_jax.studies.finished import FinishedStudy
from churn_jax.studies.inputs import StudyError
from churn_jax.typing import Array, PyTree
from experiments.diversity.networks import (
    RowNetworks,
    Structure,
    over_chunks,
    to_pixels,
)
from experiments.elodi.displacement_numbers import FeatureSpace

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

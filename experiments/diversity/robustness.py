"""Sections `ood` and `corruptions`: deployed predictions on images of other kinds."""

import functools
import itertools

import numpy as np

from churn_jax import data
from churn_jax.configuration.rows import MethodSpec
from churn_jax.data import DataError
from experiments.diversity.corrupted_images import corrupted_sets
from experiments.diversity.corruption import Cell, CorruptionSummary, measure
from experiments.diversity.foreign_examples import (
    OutOfDistribution,
    out_of_distribution,
)
from experiments.diversity.networks import deployed_logits, over_chunks, to_pixels
from experiments.diversity.study import AnalysedStudy, evenly, spaced

LARGEST = 500  # examples per call


def _deployed(analysed: AnalysedStudy, spec: MethodSpec, images) -> np.ndarray:
    """`[R, N, C]`, what the replicas of a row predict."""
    row, pixels = analysed.networks(spec.name), to_pixels(images)
    asked = (
        functools.partial(deployed_logits, row.structure, row.replica(run))
        for run in analysed.runs
    )
    return np.stack([over_chunks(ask, (pixels,), LARGEST, axis=0) for ask in asked])


def foreign_images(analysed: AnalysedStudy) -> np.ndarray:
    """The test images of the data set that `--ood` names."""
    config = analysed.study.config.data
    name = analysed.options.ood
    if name == config.name:
        raise DataError(f"--ood {name}: the study's own data set is not foreign to it")
    if data.is_streaming(name, data_dir=config.data_dir):
        raise DataError(f"{name} is a stream; name a data set that lies in memory")
    found = data.load(
        name,
        data_dir=config.data_dir,
        manual_dir=config.manual_dir,
        text=config.text(),
    ).test
    own = analysed.dataset.test.images
    if found.images.shape[1:] != own.shape[1:] or found.images.dtype != own.dtype:
        raise DataError(
            f"{name} has images {found.images.shape[1:]} of {found.images.dtype}, but "
            f"the networks of this study take those of {config.name}, "
            f"{own.shape[1:]} of {own.dtype}"
        )
    return spaced(found, analysed.options.examples).images


def foreign(analysed: AnalysedStudy) -> dict[str, OutOfDistribution]:
    """By row: entropies on own and on foreign test images."""
    images = foreign_images(analysed)
    own = analysed.test().images
    return {
        spec.name: out_of_distribution(
            _deployed(analysed, spec, own), _deployed(analysed, spec, images)
        )
        for spec in analysed.rows
    }


def corruptions(analysed: AnalysedStudy) -> dict[str, CorruptionSummary]:
    """By row: every quantity on every corrupted test set, which is made once."""
    config, options = analysed.study.config.data, analysed.options
    sets = corrupted_sets(
        config.name,
        analysed.test(),
        manual_dir=config.manual_dir,
        kinds=options.types,
        severities=options.severities,
    )
    own = analysed.dataset.test.images
    cells: dict[str, dict[Cell, dict[str, np.ndarray]]] = {}
    for cell in itertools.product(sets.corruptions, sets.severities):
        images, labels = sets.read(*cell)
        # A published set is whole; one that was made is of these examples already.
        kept = evenly(len(labels), options.examples)
        images, labels = images[kept], np.asarray(labels)[kept]
        if images.shape[1:] != own.shape[1:]:
            raise DataError(
                f"{sets.source} has images {images.shape[1:]}, those of {config.name} "
                f"are {own.shape[1:]}"
            )
        for spec in analysed.rows:
            logits = _deployed(analysed, spec, images)
            cells.setdefault(spec.name, {})[cell] = measure(logits, labels)
    return {row: CorruptionSummary.of(found) for row, found in cells.items()}

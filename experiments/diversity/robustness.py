"""Sections `ood` and `corruptions`: deployed predictions on images of other kinds."""

import dataclasses
import functools
from typing import Any

import numpy as np

from churn_jax import data
from churn_jax.configuration.rows import MethodSpec
from churn_jax.data import DataError
from experiments.diversity.corrupted_images import corrupted_sets
from experiments.diversity.corruption import QUANTITIES, corruption_summary
from experiments.diversity.foreign_examples import out_of_distribution
from experiments.diversity.networks import deployed_logits, over_chunks, to_pixels
from experiments.diversity.study import AnalysedStudy, Part, evenly, spaced

LARGEST = 500  # examples per call


def _deployed(
    analysed: AnalysedStudy, spec: MethodSpec, run: int, images
) -> np.ndarray:
    """`[N, C]`, what one replica of a row predicts."""
    row = analysed.networks(spec.name)
    ask = functools.partial(deployed_logits, row.structure, row.replica(run))
    return over_chunks(ask, (to_pixels(images),), LARGEST, axis=0)


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


def ood_parts(analysed: AnalysedStudy) -> list[Part]:
    """One part per row and replica: entropies on own and on foreign test images."""
    foreign = foreign_images(analysed)
    compute = functools.partial(_entropies, foreign)
    return analysed.parts(compute, ((spec,) for spec in analysed.rows))


def _entropies(
    foreign, analysed: AnalysedStudy, spec: MethodSpec, run: int
) -> tuple[Any, None]:
    own = _deployed(analysed, spec, run, analysed.test().images)
    found = out_of_distribution(
        own[None], _deployed(analysed, spec, run, foreign)[None]
    )
    return {
        "entropy_in": found.entropy_in[0],
        "entropy_out": found.entropy_out[0],
        "auroc_entropy": found.auroc_entropy[0],
        "auroc_max_probability": found.auroc_max_probability[0],
        "edges": found.histogram_in.edges,
        "counts_in": found.histogram_in.counts[0],
        "counts_out": found.histogram_out.counts[0],
    }, None


def corruption_parts(analysed: AnalysedStudy) -> list[Part]:
    """One part per corrupted test set and row; a set is made once for all rows."""
    config, options = analysed.study.config.data, analysed.options
    sets = corrupted_sets(
        config.name,
        analysed.test(),
        manual_dir=config.manual_dir,
        kinds=options.types,
        severities=options.severities,
    )
    own = analysed.dataset.test.images

    @functools.lru_cache(maxsize=1)
    def read(kind: str, severity: int):
        images, labels = sets.read(kind, severity)
        # A published set is whole; one that was made is of these examples already.
        kept = evenly(len(labels), options.examples)
        images, labels = images[kept], np.asarray(labels)[kept]
        if images.shape[1:] != own.shape[1:]:
            raise DataError(
                f"{sets.source} has images {images.shape[1:]}, those of {config.name} "
                f"are {own.shape[1:]}"
            )
        return images, labels

    return [
        Part(
            f"{spec.name}/{kind}/{severity}",
            # Published images and our own are other numbers under one name.
            analysed.stamp(spec, extra=sets.source),
            functools.partial(_cell, analysed, spec, read, kind, severity, sets.source),
        )
        for kind in sets.corruptions
        for severity in sets.severities
        for spec in analysed.rows
        if analysed.runs(spec)
    ]


def _cell(analysed, spec, read, kind, severity, source) -> tuple[Any, None]:
    """Every quantity of all replicas on one corrupted set."""
    images, labels = read(kind, severity)
    runs = analysed.runs(spec)
    logits = np.stack([_deployed(analysed, spec, run, images) for run in runs])
    found = dataclasses.asdict(corruption_summary({(kind, severity): (logits, labels)}))
    value = {quantity: found[quantity][0, 0] for quantity in QUANTITIES}
    return {"runs": runs, "source": source, "examples": len(labels), **value}, None

"""Inputs of a study: its data with their pixels' moments, and the run of each row."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from churn_jax import data
from churn_jax.configuration.record import StudyError
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.data import Dataset, Split, StreamingDataset
from churn_jax.data.clicks import Clicks, load_clicks
from churn_jax.data.streaming import IMAGENET_STATISTICS
from churn_jax.training.clicks import click_run
from churn_jax.training.run import Run


class Inputs(NamedTuple):
    """A data set with the moments that its pixels are normalised by.

    Of a stream the moments are those of ImageNet: computing its own would take a pass
    over all pixels.
    """

    dataset: Any  # a `Dataset`, `StreamingDataset` or `Clicks`
    mean: tuple[float, ...]
    std: tuple[float, ...]


def load_inputs(config: DataConfig, train_size: int | None) -> Inputs:
    """The set that `config` names, cut to `train_size` training examples."""
    options = {
        "data_dir": config.data_dir,
        "manual_dir": config.manual_dir,
        "train_size": train_size,
        "validation": config.validation,
    }
    # Sets whose images vary in size are streamed, all others lie in memory.
    if data.is_streaming(config.name, data_dir=config.data_dir):
        reading = data.Reading(threads=config.threads, workers=config.workers)
        size: Any = {"image_size": config.image_size, "reading": reading}
        found = data.load_streaming(config.name, **size, **options)
    else:
        found = data.load(config.name, text=config.text(), **options)
    moments = IMAGENET_STATISTICS
    if not isinstance(found, StreamingDataset):
        moments = data.channel_statistics(found.train.images)
    mean, std = (tuple(map(float, np.ravel(m))) for m in moments)
    return Inputs(found, mean, std)


class DataFacts(NamedTuple):
    """The facts of a data set that a recipe or a compiled step depends on."""

    shape: tuple[int, ...]  # of one example; () where settings of the study decide
    classes: int
    train: int
    validation: int = 0
    test: int = 0
    dtype: Any = np.uint8  # int32 of token ids, float32 of a table
    tokens: int = 0  # number of ids, the largest plus one; 0 where it does not matter
    streamed: bool = False  # images are cropped from larger ones of any size

    @property
    def kind(self) -> str:
        """Images, table or tokens."""
        untold = "images" if len(self.shape) == 3 else "table"
        return "tokens" if self.tokens else untold


def facts_of(dataset: Dataset | StreamingDataset) -> DataFacts:
    """The facts of a data set that is open."""
    parts: Any = (dataset.train, dataset.validation, dataset.test)
    classes, (train, validation, test) = dataset.num_classes, map(len, parts)
    found = DataFacts((), classes, train, validation, test)
    if isinstance(dataset, StreamingDataset):
        shape = tuple(dataset.train.image_shape)
        return found._replace(shape=shape, streamed=True)
    images, tokens = dataset.train.images, 0
    if data.is_tokens(images):
        tokens = 1 + max(int(np.max(part.images, initial=0)) for part in parts)
    return found._replace(shape=images.shape[1:], dtype=images.dtype, tokens=tokens)


def row_run(config: StudyConfig, spec: MethodSpec, num_classes: int) -> Run:
    """The run of one row of a study."""
    return Run(
        name=spec.name,
        method=spec.method,
        groups=spec.groups(config.model, num_classes),
        config=spec.config(config.train),
        stream=1 if spec.taught else 0,
        keep=spec.keep,
    )


class StudyInputs:
    """A study's data, and what each row is trained on of them; loaded once."""

    def __init__(self, config: StudyConfig):
        self.config = config
        if config.train.one_pass is None:
            self.whole = load_inputs(config.data, config.data.train_size)
        else:
            own, share = config.data, config.data.validation
            share = None if share is None else float(share)
            clicks = load_clicks(own.name, train_size=own.train_size, validation=share)
            self.whole = Inputs(clicks, (0.0,), (1.0,))
        self._rows: dict[tuple, Inputs] = {}

    @property
    def dataset(self) -> Any:
        """The study's data set."""
        return self.whole.dataset

    def described(self) -> StudyConfig:
        """The study with what the data set notes of its source among its own notes."""
        if not isinstance(self.dataset, Dataset):
            return self.config
        new = [n for n in self.dataset.notes if n not in self.config.notes]
        return dataclasses.replace(self.config, notes=(*self.config.notes, *new))

    def check(self, specs: Sequence[MethodSpec], what: str) -> None:
        """Refuses data without a validation split, and rows that need more examples."""
        # A study of clicks reports the stream, of which nothing need be held out.
        needed = what == "a sweep" or not isinstance(self.dataset, Clicks)
        if needed and len(self.dataset.validation) == 0:
            raise StudyError(f"{what} needs a validation split; give validation")
        for spec in specs:
            if (spec.train_size or 0) > len(self.dataset.train):
                raise StudyError(
                    f"{spec.name} wants {spec.train_size} training examples; the study "
                    f"has {len(self.dataset.train)}"
                )

    def run(self, spec: MethodSpec) -> Run:
        """The run of one row; refuses what one pass over clicks does not have."""
        data, config = self.dataset, self.config
        if not isinstance(data, Clicks):
            return row_run(config, spec, data.num_classes)
        for name in ("models", "train_size", "separate", "classes", "start", "taught"):
            if getattr(spec, name):
                what = f"{spec.name}: a row of a study of clicks"
                raise ValueError(f"{what} has no {name}")
        model = (spec.model or config.model).click_model(
            data.sizes, data.train.numeric.shape[1], spec.method
        )
        return click_run(spec.name, spec.method, model, spec.config(config.train))

    def of(self, spec: MethodSpec) -> Inputs:
        """The inputs of one row.

        Rows of some classes, or of a share of every class's examples, keep the moments
        of the study's pixels, and rows with a `start` those of the row it begins with:
        an old model and its successor must see an image alike.
        """
        if (first := self.config.first(spec)) is not spec:
            begun, own = self.of(first), dataclasses.replace(spec, start="", keep=0.0)
            return self.of(own)._replace(mean=begun.mean, std=begun.std)
        study = self.config.data
        size = study.train_size if spec.train_size is None else spec.train_size
        key = (size, spec.classes, spec.class_share)
        if key not in self._rows:
            own = self.whole
            if size != study.train_size:
                own = load_inputs(study, size)
                again, first = own.dataset.test, self.dataset.test
                names = ["ids", "labels", *["images"] * isinstance(first, Split)]
                pairs = ((getattr(again, n), getattr(first, n)) for n in names)
                if not all(np.array_equal(*pair) for pair in pairs):
                    raise StudyError(
                        f"{study.name} gave other test examples when it was read again "
                        f"for {spec.name}; they must be the same every time"
                    )
            if spec.classes or spec.class_share != 1.0:
                narrowed = data.narrow(own.dataset, spec.classes, spec.class_share)
                own = Inputs(narrowed, own.mean, own.std)
            self._rows[key] = own
        return self._rows[key]

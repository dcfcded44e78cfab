"""Seeds that the runs of a row share, and the row's changes of its training.

Churn between runs is caused by what differs between them, so a report says what that
was: initial weights, mini-batch order, augmentation, or the training set itself.
"""

from collections.abc import Sequence

from churn_compare.documents import Column, Section, Table
from churn_jax.configuration.names import network_words
from churn_jax.configuration.record import RowRecord
from churn_jax.configuration.training import TrainConfig
from churn_jax.reports.artefacts import Study

_SEEDS = {
    "init": "initial weights",
    "order": "mini-batch order",
    "augment": "augmentation",
}


def training(study: Study, info: RowRecord) -> TrainConfig:
    """The training of one row: the study's, with the row's changes."""
    return info.spec.config(study.config.train)


def _with_seeds(study: Study, info: RowRecord, how: str) -> list[str]:
    seeds = training(study, info).seeds
    return [words for name, words in _SEEDS.items() if getattr(seeds, name) == how]


def shared(study: Study, info: RowRecord) -> tuple[str, ...]:
    """The seeds that all runs of a row share, in words."""
    out = _with_seeds(study, info, "fixed")
    if training(study, info).seeds.augment == "off":
        out.append("no augmentation")
    if _draws(study, info) and not _resampled(study, info):
        out.append("one bootstrap of the training set")
    return tuple(out)


def differing(study: Study, info: RowRecord) -> tuple[str, ...]:
    """The seeds in which the runs of a row differ, in words."""
    drawn = ["resampled training set"] if _resampled(study, info) else []
    return (*_with_seeds(study, info, "varied"), *drawn)


def _draws(study: Study, info: RowRecord) -> bool:
    """True if a training set is drawn at all, per run or per member."""
    per_run = training(study, info).sample == "bootstrap"
    return per_run or info.method.member_sample != "shared"


def _resampled(study: Study, info: RowRecord) -> bool:
    varied = training(study, info).seeds.sample == "varied"
    return varied and _draws(study, info)


def _changes(info: RowRecord) -> list[str]:
    """The changes of a row to the study's training, data or network."""
    # What varies between runs is not among it: see `differing`.
    spec = info.spec
    found = [
        f"{path} = {value}"
        for path, value in spec.train
        if path != "sample" and path.partition(".")[0] != "seeds"
    ]
    if spec.train_size is not None:
        found.append(f"{spec.train_size:,} training examples")
    return [*found, f"network {network_words(spec.model)}"] if spec.model else found


def training_section(study: Study, methods: Sequence[RowRecord]) -> Section:
    """Table of the seeds that each row's runs share, and of the row's changes."""
    specs = [info.spec for info in methods]
    if not any(spec.train or spec.train_size or spec.model for spec in specs):
        return Section("", [])
    heads = ("Method", "Runs share", "Runs differ in", "The row changes")
    rows = []
    for info in methods:
        words = shared(study, info), differing(study, info), _changes(info)
        rows.append((info.label, *(", ".join(w) or "–" for w in words)))
    table = Table([Column(head, "left") for head in heads], rows, kind="words")
    return Section("What the rows differ in", [table], detail="summary")


_SERVED = {
    "member": "one of them",
    "mean_probs": "the mean of their probabilities",
    "mean_logits": "the mean of their logits",
    "gate": "their mixture, weighed by a gate",
}


def kind_of_churn(study: Study, methods: Sequence[RowRecord]) -> tuple[str, ...]:
    """Says where runs differ in their training set, share a seed, or are ensembles."""
    # Runs that share their initial weights are independent only given those weights:
    # their spread, and with it every standard error and test, leaves out how much other
    # weights would have moved them all. Runs that share everything are one run.
    resampled = [info for info in methods if _resampled(study, info)]
    drawn = [i for i in methods if _draws(study, i) and i not in resampled]
    equal = [info for info in methods if not differing(study, info)]
    fixed = [
        info
        for info in methods
        if info not in equal and _with_seeds(study, info, "fixed")
    ]
    whose = "all rows" if len(resampled) == len(methods) else _names(resampled)
    several = [info for info in methods if info.method.members > 1]
    served = {how: [i for i in several if i.method.deploy == how] for how in _SERVED}
    sentences = [
        (
            resampled,
            f"The runs of {whose} differ in their resampled training set (bootstrap): "
            "this is cross-sample churn, between models of other samples of the data, "
            "and not churn between seeds alone.",
        ),
        (
            drawn,
            f"The runs of {_names(drawn)} share one bootstrap of the training set, so "
            "their churn is not cross-sample churn.",
        ),
        (
            fixed,
            f"The runs of {_names(fixed)} share a seed: their spread, standard errors "
            "and tests hold for that one draw of it, and do not say how another draw "
            "would move all of them.",
        ),
        (
            equal,
            f"The runs of {_names(equal)} differ in nothing: they are one computation, "
            "repeated. Their churn is what this launch's hardware adds, which slots of "
            "one launch can hide (churn-jax doctor compares launches), and their "
            "accuracy is a single run's, whatever its test says.",
        ),
        *(
            (
                infos,
                f"Rows of several networks that serve {_SERVED[how]}: {_names(infos)}.",
            )
            for how, infos in served.items()
        ),
    ]
    return tuple(said for infos, said in sentences if infos)


def _names(methods: Sequence[RowRecord]) -> str:
    return "; ".join(info.label for info in methods)

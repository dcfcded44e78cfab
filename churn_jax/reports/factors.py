"""What the runs of a row have in common, and what the row changes in its training.

Churn between runs is caused by what differs between them, so a report says what that
was: initial weights, mini-batch order, augmentation, or the training set itself.
"""

from collections.abc import Sequence

from churn_jax.configuration.names import network_words
from churn_jax.configuration.record import RowRecord
from churn_jax.configuration.training import TrainConfig
from churn_jax.reports.artefacts import Study

_SAME = {
    "init": "initial weights",
    "order": "mini-batch order",
    "augment": "augmentation",
}


def training(study: Study, info: RowRecord) -> TrainConfig:
    """The training of one row: the study's, with the row's changes."""
    return info.spec.config(study.config.train)


def shared(study: Study, info: RowRecord) -> tuple[str, ...]:
    """What all runs of a row have in common, in words."""
    seeds = training(study, info).seeds
    out = [
        words for factor, words in _SAME.items() if getattr(seeds, factor) == "fixed"
    ]
    if seeds.augment == "off":
        out.append("no augmentation")
    if _draws(study, info) and not _resampled(study, info):
        out.append("one bootstrap of the training set")
    return tuple(out)


def differing(study: Study, info: RowRecord) -> tuple[str, ...]:
    """What the runs of a row differ in, in words."""
    seeds = training(study, info).seeds
    out = [
        words for factor, words in _SAME.items() if getattr(seeds, factor) == "varied"
    ]
    if _resampled(study, info):
        out.append("resampled training set")
    return tuple(out)


def _draws(study: Study, info: RowRecord) -> bool:
    """Whether a training set is drawn at all, per run or per member."""
    per_run = training(study, info).sample == "bootstrap"
    return per_run or getattr(info.method, "member_sample", "shared") != "shared"


def _resampled(study: Study, info: RowRecord) -> bool:
    varied = training(study, info).seeds.sample == "varied"
    return varied and _draws(study, info)


def changes(info: RowRecord) -> tuple[str, ...]:
    """What a row changes in the study's training, data or network."""
    # What varies between runs is not among it: see `differing`.
    out = [
        f"{path} = {value}"
        for path, value in info.spec.train
        if path != "sample" and path.partition(".")[0] != "seeds"
    ]
    if info.spec.train_size is not None:
        out.append(f"{info.spec.train_size:,} training examples")
    if info.spec.model is not None:
        out.append(f"network {network_words(info.spec.model)}")
    return tuple(out)


def training_table(study: Study, methods: Sequence[RowRecord]) -> list[tuple[str, ...]]:
    """What each row's runs share and differ in, and what the row changes."""
    if not any(i.spec.train or i.spec.train_size or i.spec.model for i in methods):
        return []
    head = ("Method", "Runs share", "Runs differ in", "The row changes")
    out: list[tuple[str, ...]] = [head]
    for info in methods:
        words = (shared(study, info), differing(study, info), changes(info))
        out.append((info.label, *(", ".join(w) or "–" for w in words)))
    return out


def cross_sample_sentences(
    study: Study, methods: Sequence[RowRecord]
) -> tuple[str, ...]:
    """Says where runs differ in their training set, so that churn is cross-sample."""
    drawn = [info for info in methods if _resampled(study, info)]
    one = [i for i in methods if _draws(study, i) and not _resampled(study, i)]
    out = []
    if drawn:
        whose = "all rows" if len(drawn) == len(methods) else _names(drawn)
        out.append(
            f"The runs of {whose} differ in their resampled training set (bootstrap): "
            "this is cross-sample churn, between models of other samples of the data, "
            "and not churn between seeds alone."
        )
    if one:
        out.append(
            f"The runs of {_names(one)} share one bootstrap of the training set, so "
            "their churn is not cross-sample churn."
        )
    return tuple(out)


_SERVED = {
    "member": "one of them",
    "mean_probs": "the mean of their probabilities",
    "mean_logits": "the mean of their logits",
    "gate": "their mixture, weighed by a gate",
}


def served_sentences(methods: Sequence[RowRecord]) -> tuple[str, ...]:
    """Says what rows of several networks predict with."""
    several = [info for info in methods if info.method.members > 1]
    rows = {how: [i for i in several if i.method.deploy == how] for how in _SERVED}
    return tuple(
        f"Rows of several networks that serve {_SERVED[how]}: {_names(infos)}."
        for how, infos in rows.items()
        if infos
    )


def fixed_seed_sentences(study: Study, methods: Sequence[RowRecord]) -> tuple[str, ...]:
    """Says what numbers of runs that share a seed are evidence of."""
    # Runs that share their initial weights are independent only given those weights:
    # their spread, and with it every standard error and test, leaves out how much other
    # weights would have moved them all. Runs that share everything are one run.
    one = [info for info in methods if not differing(study, info)]
    drawn = set(_SAME.values())
    some = [
        info
        for info in methods
        if info not in one and drawn.intersection(shared(study, info))
    ]
    out = []
    if some:
        out.append(
            f"The runs of {_names(some)} share a seed: their spread, standard errors "
            "and tests hold for that one draw of it, and do not say how another draw "
            "would move all of them."
        )
    if one:
        out.append(
            f"The runs of {_names(one)} differ in nothing: they are one computation, "
            "repeated. Their churn is what this launch's hardware adds, which slots of "
            "one launch can hide (churn-jax doctor compares launches), and their "
            "accuracy is a single run's, whatever its test says."
        )
    return tuple(out)


def _names(methods: Sequence[RowRecord]) -> str:
    return "; ".join(info.label for info in methods)

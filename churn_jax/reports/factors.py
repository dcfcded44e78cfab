"""What the runs of a row have in common, and what the row changes in its training.

Churn between runs is caused by what differs between them, so a report says what that
was: initial weights, mini-batch order, augmentation, or the training set itself.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from churn_jax.reports.artefacts import MethodInfo, StudyInfo

__all__ = [
    "changes",
    "cross_sample_sentences",
    "differing",
    "fixed_seed_sentences",
    "network",
    "shared",
    "training",
    "training_table",
]

_SAME = {
    "init": "initial weights",
    "order": "mini-batch order",
    "augment": "augmentation",
}


def training(study: StudyInfo, info: MethodInfo) -> dict[str, Any]:
    """The training configuration of one row: the study's, with the row's changes.

    Args:
        study: from `read_study`.
        info: one of its methods.

    Returns:
        The configuration as nested dicts; empty where `study.json` has none.
    """
    config = study.facts.get("config")
    found = config.get("train") if isinstance(config, Mapping) else None
    settings = copy.deepcopy(dict(found)) if isinstance(found, Mapping) else {}
    for path, value in info.train.items():
        *above, last = path.split(".")
        inner = settings
        for part in above:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[last] = value
    return settings


def _seeds(study: StudyInfo, info: MethodInfo) -> Mapping[str, Any]:
    seeds = training(study, info).get("seeds")
    return seeds if isinstance(seeds, Mapping) else {}


def shared(study: StudyInfo, info: MethodInfo) -> tuple[str, ...]:
    """What all runs of a row have in common, in words.

    Args:
        study: from `read_study`.
        info: one of its methods.

    Returns:
        For example `("initial weights", "no augmentation")`; empty when everything
        varies or nothing is known.
    """
    seeds = _seeds(study, info)
    out = [words for factor, words in _SAME.items() if seeds.get(factor) == "fixed"]
    if seeds.get("augment") == "off":
        out.append("no augmentation")
    if _draws(study, info) and not _resampled(study, info):
        out.append("one bootstrap of the training set")
    return tuple(out)


def differing(study: StudyInfo, info: MethodInfo) -> tuple[str, ...]:
    """What the runs of a row differ in, in words.

    Args:
        study: from `read_study`.
        info: one of its methods.

    Returns:
        For example `("mini-batch order", "resampled training set")`.
    """
    seeds = _seeds(study, info)
    out = [words for factor, words in _SAME.items() if seeds.get(factor) == "varied"]
    if _resampled(study, info):
        out.append("resampled training set")
    return tuple(out)


def _draws(study: StudyInfo, info: MethodInfo) -> bool:
    """Whether a training set is drawn at all, per run or per member."""
    per_run = training(study, info).get("sample") == "bootstrap"
    return per_run or info.method.get("member_sample", "shared") != "shared"


def _resampled(study: StudyInfo, info: MethodInfo) -> bool:
    varied = _seeds(study, info).get("sample") == "varied"
    return varied and _draws(study, info)


def changes(info: MethodInfo) -> tuple[str, ...]:
    """What a row changes in the study's training, data or network.

    What varies between runs is not among it: see `differing`.

    Args:
        info: a method.

    Returns:
        For example `("optimizer.weight_decay = 0.0", "1,000 training examples")`.
    """
    out = [
        f"{path} = {value}"
        for path, value in info.train.items()
        if path != "sample" and path.partition(".")[0] != "seeds"
    ]
    if info.train_size is not None:
        out.append(f"{info.train_size:,} training examples")
    if info.model:
        out.append(f"network {network(info.model)}")
    return tuple(out)


def network(model: Mapping[str, Any]) -> str:
    """A recorded network in words.

    Example:
        >>> network({"name": "mlp", "features": [256, 256]})
        'mlp 256 256'
    """
    widths = model.get("features") or ()
    return " ".join(map(str, (model.get("name", "another"), *widths)))


def training_table(
    study: StudyInfo, methods: Sequence[MethodInfo]
) -> list[tuple[str, ...]]:
    """What each row's runs share and differ in, and what the row changes.

    Args:
        study: from `read_study`.
        methods: those that are reported.

    Returns:
        Headings, then one tuple of texts per row; empty when every row trains as the
        study says.
    """
    if not any(i.train or i.train_size is not None or i.model for i in methods):
        return []
    head = ("Method", "Runs share", "Runs differ in", "The row changes")
    out: list[tuple[str, ...]] = [head]
    for info in methods:
        words = (shared(study, info), differing(study, info), changes(info))
        out.append((info.label, *(", ".join(w) or "–" for w in words)))
    return out


def cross_sample_sentences(
    study: StudyInfo, methods: Sequence[MethodInfo]
) -> tuple[str, ...]:
    """Says where runs differ in their training set, so that churn is cross-sample.

    Args:
        study: from `read_study`.
        methods: those that are reported.

    Returns:
        No sentence for a study that resamples nothing.
    """
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


def fixed_seed_sentences(
    study: StudyInfo, methods: Sequence[MethodInfo]
) -> tuple[str, ...]:
    """Says what numbers of runs that share a seed are evidence of.

    Runs that share their initial weights are independent only given those weights:
    their spread, and with it every standard error and test, leaves out how much other
    weights would have moved them all. Runs that share everything are one run.

    Args:
        study: from `read_study`.
        methods: those that are reported.

    Returns:
        No sentence for a study whose runs differ in everything.
    """
    known = [info for info in methods if _seeds(study, info)]
    one = [info for info in known if not differing(study, info)]
    drawn = set(_SAME.values())
    some = [
        info
        for info in known
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


def _names(methods: Sequence[MethodInfo]) -> str:
    return "; ".join(info.label for info in methods)

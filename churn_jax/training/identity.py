"""What a checkpoint must have been trained as, and what differs when it was not."""

import json
from typing import Any

from churn_jax.configuration.codec import to_json
from churn_jax.configuration.difference import differences, in_words, without
from churn_jax.training.run import Run, Trained
from churn_jax.training.teachers import Teachers, as_teachers

__all__ = ["difference", "identity", "identity_of"]


def identity(config: Any, **parts: Any) -> str:
    """Settings and what else decides the results of a training, as JSON text."""
    return json.dumps(without(to_json(config) | to_json(parts)), sort_keys=True)


def identity_of(
    run: Run,
    fingerprint: str,
    teacher: Trained | Teachers | None,
    start: Trained | None = None,
) -> str:
    """What a checkpoint must have been trained as to be continued by `run`.

    Equal texts mean equal training; `fingerprint` is that of the data.
    """
    teachers = as_teachers(teacher)
    began = None
    if start is not None:
        began = {"name": start.run.name, **json.loads(start.identity)}
    return identity(
        run.config,
        data=fingerprint,
        method=run.method,
        networks=[[group.network.name, group.size] for group in run.groups],
        stream=run.stream,
        keep=run.keep,
        teacher=None if teachers is None else teachers.identity(),
        start=began,
    )


def difference(theirs: str, ours: str) -> str:
    """Up to three settings in which two identities differ, and how many more."""
    try:
        found = differences(json.loads(theirs), json.loads(ours))
    except json.JSONDecodeError:
        found = []
    return in_words(found) or "unknown settings"

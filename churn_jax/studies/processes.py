"""Several processes that train together must have been given the same work."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax.configuration.codec import differences, in_words
from churn_jax.studies.inputs import StudyError
from churn_jax.training.identity import jax_settings


def check_agreement(work: Mapping[str, Any]) -> None:
    """Refuses, on all processes, work (JSON values) that is not the same everywhere.

    Called before anything is trained: processes with other settings would wait for
    each other for ever, or average what does not belong together.
    """
    if jax.process_count() == 1:
        return
    texts = _gathered(json.dumps({**work, "jax": jax_settings()}, sort_keys=True))
    for process, text in enumerate(texts):
        if found := differences(json.loads(texts[0]), json.loads(text)):
            raise StudyError(
                f"process {process} was started for other work than process 0 "
                f"({in_words(found)}); start the same command on all"
            )


def check_shared_folder(out: Path) -> None:
    """Refuses an output folder that not every process sees."""
    if jax.process_count() == 1:
        return
    first = jax.process_index() == 0
    token = _gathered(secrets.token_hex(8))[0]
    path = out / f".launch-{token}"
    if first:
        path.touch()
    _gathered("written")
    seen = _gathered("yes" if path.exists() else "no")
    if first:
        path.unlink()
    if "no" in seen:
        raise StudyError(
            f"process {seen.index('no')} does not see what process 0 writes into "
            f"{out}; all processes need one folder on a shared file system (--out), "
            "and studies at the same time a port each (--launch.coordinator)"
        )


def _gathered(text: str) -> list[str]:
    """The text of every process, on every process."""
    from jax.experimental import multihost_utils

    data = np.frombuffer(text.encode(), np.uint8)
    sizes = multihost_utils.process_allgather(np.asarray(data.size, np.int32))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: data.size] = data
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [bytes(r[:n]).decode() for r, n in zip(rows, sizes.ravel(), strict=True)]

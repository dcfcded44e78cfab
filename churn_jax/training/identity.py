"""The identity of a training, which a checkpoint must have, and differences.

It is settings, data and names, and no hash of the step's jaxpr. Coefficients, rates
and seeds are arguments of the step, so they would have to be here in words as well;
networks are traced otherwise for each backend, so a training could not go on on
another one; and tracing a step takes seconds for a ResNet. A study puts the hash of
what an object of the user's computes (`computation`) into its name instead.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from churn_jax.configuration.codec import differences, in_words, to_json, without
from churn_jax.training.run import Run, Trained
from churn_jax.training.teachers import Teachers, as_teachers


def jax_settings() -> dict[str, Any]:
    """Settings of JAX that decide which numbers are drawn, and how they are rounded."""
    names = (
        *("jax_default_prng_impl", "jax_threefry_partitionable"),
        *("jax_random_seed_offset", "jax_enable_x64", "jax_default_matmul_precision"),
    )
    return {name: getattr(jax.config, name) for name in names}


def identity_of(
    run: Run,
    fingerprint: str,
    teacher: Trained | Teachers | None = None,
    start: Trained | None = None,
) -> str:
    """The identity that a checkpoint must have to be continued by `run`.

    Equal texts mean equal training; `fingerprint` is that of the data.
    """
    teachers = as_teachers(teacher)
    began = None
    if start is not None:
        began = {"name": start.run.name, **json.loads(start.identity)}
    parts = {
        "data": fingerprint,
        "method": run.method,
        "networks": [[group.network.name, group.size] for group in run.groups],
        "clicks": run.clicks,
        "stream": run.stream,
        "keep": run.keep,
        "teacher": None if teachers is None else teachers.identity(),
        "start": began,
        "jax": jax_settings(),
    }
    return json.dumps(without(to_json(run.config) | to_json(parts)), sort_keys=True)


def difference(theirs: str, ours: str) -> str:
    """Up to three settings in which two identities differ, and how many more."""
    try:
        found = differences(json.loads(theirs), json.loads(ours))
    except json.JSONDecodeError:
        found = []
    return in_words(found) or "unknown settings"


def computation(function: Callable, *arguments: Any) -> str:
    """A hash of what a pure function of arrays computes, equal in every process.

    Of the arguments only shapes and dtypes count. Another version of JAX may trace the
    same function into other operations, and so give another hash.
    """
    traced = jax.make_jaxpr(function)(*arguments)
    # Functions that an operation holds are printed with their addresses.
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(traced)).encode())
    for constant in _constants(traced):
        if jax.dtypes.issubdtype(getattr(constant, "dtype", None), jax.dtypes.prng_key):
            constant = jax.random.key_data(constant)
        digest.update(np.asarray(constant).tobytes())
    return digest.hexdigest()


def _constants(traced: Any):
    """Arrays that a traced function holds, also those of the functions it calls."""
    yield from getattr(traced, "consts", ())
    for equation in getattr(traced, "eqns", ()):
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else [value]:
                yield from _constants(part)

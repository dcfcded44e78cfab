"""The mapping `tune`: ways to compute the replicas are timed, the fastest is taken."""

import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from churn_compare.array_files import write_file
from churn_jax.ensembles.mapping import FEW_SLOTS
from churn_jax.training.partition import replicate, split
from churn_jax.training.program import LONGEST_CALL, Program
from churn_jax.training.run import Run, chunk_count
from churn_jax.training.step import make_step

_SECONDS = 0.3  # of updates in one measurement; the best of three counts
_ORDER = ("auto", "loop", "unroll", "vmap")  # from quick to slow to compile

_measured: dict[str, list] = {}  # in this process


class Choice(NamedTuple):
    """A program, and how many updates a dispatch makes."""

    program: Program
    steps_per_call: int

    def __str__(self) -> str:
        return f"{self.program.mapping} ({self.steps_per_call} updates a call)"


def tuned(
    session, part, program_of: Callable[[Run], tuple[Program, int]]
) -> tuple[Choice, str]:
    """The fastest way to train a part of a session, and a sentence for the user.

    Copies of the state are trained on the session's data, so nothing that is trained
    depends on what is measured. The result is kept in this process, and in
    `mappings.json` in the folder of JAX's compilation cache if there is one.
    Measuring ends once it has taken as long as the training would take by the fastest
    way so far. The part has the program of `auto`; `program_of` makes that of a run.
    """
    run = part.run
    networks = run.config.replicas * sum(group.size for group in run.groups)
    longest = run.config.steps_per_call or min(session.steps_per_epoch, LONGEST_CALL)

    def choice(mapping: str, steps_per_call: int = 0) -> Choice:
        config = dataclasses.replace(run.config, mapping=mapping)
        program, chosen = program_of(dataclasses.replace(run, config=config))
        return Choice(program, steps_per_call or chosen)

    key = _key(session, part)
    known = _measured.get(key) or _read().get(key)
    if known is not None:
        found = choice(*known)
        return found, f"{run.name}: {found}, as measured earlier"
    began = time.perf_counter()
    seconds: dict[Choice, float] = {}
    asked: dict[Choice, list] = {}
    for mapping in _ORDER:
        if mapping == "unroll" and networks > FEW_SLOTS:
            continue  # every network is compiled
        # Where convolutions make one update per dispatch, several are tried as well.
        for steps_per_call in (0, longest):
            found = choice(mapping, steps_per_call)
            spent = time.perf_counter() - began
            if seconds and spent > session.updates * min(seconds.values()):
                break
            if found not in seconds:
                seconds[found] = _seconds_per_update(session, part, found)
                asked[found] = [mapping, found.steps_per_call]
    best = min(seconds, key=lambda found: seconds[found])
    _measured[key] = asked[best]
    if path := _path():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps({**_read(), **_measured}, indent=1) + "\n")
    times = ", ".join(f"{found} {1e3 * t:.3g} ms" for found, t in seconds.items())
    return best, f"{run.name}: {best}; measured per update: {times}"


def _arguments(session, part, program: Program) -> list[list[Any]]:
    """State, inputs and teachers of every call that an update of all replicas takes."""
    chunks = chunk_count(program, part.run.config.replicas)
    taught: list[Any] = [()] * chunks
    if program.teacher is not None:
        taught = split(session.teacher, chunks)
    state = jax.tree.map(jnp.copy, part.state)  # a step reuses its memory
    calls = zip(split(state, chunks), split(part.inputs(0), chunks), taught)
    return [list(call) for call in calls]


def _seconds_per_update(session, part, choice: Choice) -> float:
    """How long an update of all replicas takes once it has been compiled."""
    program, most = choice
    step = make_step(program, steps_per_call=None if most > 1 else 1)
    calls = _arguments(session, part, program)

    def advance(updates: int) -> float:
        counts: list[tuple] = [()] * updates
        if most > 1:
            counts = [(replicate(np.int32(updates), program.mesh),)]
        start = time.perf_counter()
        for call in calls:
            for count in counts:
                call[0] = step(*call, *session.data, *count)
        jax.block_until_ready(calls)
        return (time.perf_counter() - start) / updates

    advance(1)  # compiles
    enough = int(_SECONDS / advance(1))
    updates = min(max(enough, 1), most if most > 1 else LONGEST_CALL)
    return min(advance(updates) for _ in range(3))


def _key(session, part) -> str:
    """The key of measured times: device, version, and the step of `auto`."""
    program, run = part.program, part.run
    call = _arguments(session, part, program)[0]
    traced = make_step(program, steps_per_call=1).trace(*call, *session.data)
    text = re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr))  # addresses
    device = program.mesh.devices.flat[0].device_kind
    names = ", ".join(f"{group.size} x {group.network.name}" for group in run.groups)
    return (
        f"{program.mesh.size} x {device}, jax {jax.__version__}: {run.config.replicas} "
        f"x ({names}), batch {program.batch_size}, "
        f"{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    )


def _path() -> Path | None:
    folder = jax.config.values["jax_compilation_cache_dir"]
    return Path(folder) / "mappings.json" if folder else None


def _read() -> dict[str, list]:
    path = _path()
    try:
        return json.loads(path.read_text()) if path else {}
    except (OSError, ValueError):  # none yet, or damaged: it is written anew
        return {}

"""Contenders that take turns, the Markdown table of what they took, and the machine.

Other programs on the machine slow a repeat down and never speed it up: contenders take
turns so that all are slowed alike, ratios are of medians or of turns, and the best
repeat is the better estimate where the machine is shared. Nothing here imports JAX, so
that a process that measures memory has none of it.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Measure = Callable[[], Any]  # one turn: seconds, or several numbers


def timed(work: Callable[[], Any]) -> Measure:
    """Clock and processor seconds of `work`, which is done once before."""

    def measure() -> tuple[float, float]:
        start = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - start[0], time.process_time() - start[1]

    work()
    return measure


def take_turns(
    contenders: Mapping[str, Measure], repeats: int, seconds: float = 0
) -> dict[str, np.ndarray]:
    """Measurements of each contender, `[repeats]` or `[repeats, numbers]`.

    Args:
        contenders: by name; each has warmed up.
        repeats: number of turns.
        seconds: begin no turn after them; 0 for no limit.
    """
    found: dict[str, list] = {name: [] for name in contenders}
    began = time.perf_counter()
    for repeat in range(repeats):
        if repeat and seconds and time.perf_counter() - began > seconds:
            print(f"  {seconds:g} s are over after {repeat} repeats", flush=True)
            break
        for name, measure in contenders.items():
            found[name].append(measure())
    return {name: np.array(turns) for name, turns in found.items()}


def row(*cells: object) -> None:
    """Prints a row of a Markdown table; floats have three digits."""
    texts = (f"{c:,.3g}" if isinstance(c, float) else str(c) for c in cells)
    print(f"| {' | '.join(texts)} |", flush=True)


def head(*cells: str) -> None:
    """Prints the head of a Markdown table, whose first column is text."""
    print()
    row(*cells)
    row(":--", *["--:"] * (len(cells) - 1))


def rates(found: Mapping[str, np.ndarray], work: float, unit: str, **more) -> None:
    """Prints a row per contender: median, best, and both as ratios to references.

    Args:
        found: seconds of each contender, one number per turn.
        work: what a turn does, in `unit`.
        unit: such as `"images"`; the columns are per second.
        more: a list of references, `against`, and further columns, heading ->
            function of the median rate.
    """
    against = more.pop("against")
    best = {name: work / np.min(turns) for name, turns in found.items()}
    middle = {name: work / np.median(turns) for name, turns in found.items()}
    head("contender", f"{unit}/s", "best", *(f"/ {name}" for name in against), *more)
    for name, rate in middle.items():
        ratios = [
            f"{rate / middle[a]:.2f} ({best[name] / best[a]:.2f})" for a in against
        ]
        others = (function(rate) for function in more.values())
        row(name, f"{rate:,.0f}", f"{best[name]:,.0f}", *ratios, *others)


def of_turns(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Median over turns of a ratio; of several numbers, one after the other."""
    median = np.median(ours / theirs, axis=0)
    return " / ".join(f"{x:.2f}" for x in np.atleast_1d(median))


def alone(script: str, *words: object, **variables: str) -> dict:
    """The last line, in JSON, that a script prints in a process of its own."""
    command = [sys.executable, script, *map(str, words)]
    return last_line(command, {**os.environ, **variables})


def last_line(command: list[str], environment: dict | None = None) -> dict:
    """The last line, in JSON, of a command's output."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_mebibytes() -> float:
    """The most memory that this process has had, mapped pages included."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere a parent's memory may be counted as well
        line = next(s for s in status.read_text().splitlines() if "VmHWM" in s)
        return int(line.split()[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def machine() -> str:
    """Processor, cores, load, date and versions, as one line."""
    cpu, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        named = [x.split(":", 1)[1].strip() for x in lines if "model name" in x]
        cpu = named[0] if named else cpu
    if "jax" in sys.modules:
        import jax

        cpu = f"{jax.devices()[0].device_kind} ({cpu})"
    packages = ("jax", "flax", "numpy", "churn_jax")
    versions = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)
    return (
        f"\n{cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, "
        f"{datetime.date.today()}, Python {platform.python_version()}, {versions}"
    )

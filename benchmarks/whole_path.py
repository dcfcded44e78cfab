"""Where the seconds of `churn-jax study digits` go, with an empty and a full cache.

    JAX_PLATFORMS=cpu python benchmarks/whole_path.py
    JAX_PLATFORMS=cpu python benchmarks/whole_path.py --only baseline ensemble

Every launch is a process of its own; options are those of the study. Phases are clock
seconds of the main thread, each without the phases inside it. What JAX traces, lowers,
compiles and reads from the cache is summed over all threads: a part of the phases, and
of the thread that compiles the next row meanwhile.
"""

import collections
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# Phase -> the functions whose time it is, by module.
PHASES = {
    "sessions: data, initial weights": ("training.loop", "open_session"),
    "first updates: trace, compile": ("training.loop", "_Loop._block"),
    "waiting for the thread that compiles": ("studies.study", "wait"),
    "evaluation, with the updates before it": ("training.loop", "_Loop.evaluate"),
    "checkpoints": ("training.loop", "_Loop.save"),
    "predictions": ("studies.study", "keep_split"),
    "report": ("reports", "write"),
    "training, the rest": ("studies.study", "train"),
}
EVENTS = {
    "jaxpr_trace_duration": "traced",
    "jaxpr_to_mlir_module_duration": "lowered",
    "backend_compile_duration": "compiled or read",
    "cache_retrieval_time_sec": "of which read",
}


def launch(folder: str, words: list[str]) -> None:
    """Runs the study in this process and prints seconds by phase as JSON."""
    import jax

    from churn_jax import cli

    seconds: collections.Counter = collections.Counter()
    inside = [0.0]

    def timed(phase, function):
        def measured(*args, **named):
            if threading.current_thread() is not threading.main_thread():
                return function(*args, **named)
            began = time.perf_counter()
            inside.append(0.0)
            try:
                return function(*args, **named)
            finally:
                taken = time.perf_counter() - began
                seconds[phase] += taken - inside.pop()
                inside[-1] += taken

        return measured

    for phase, (module, path) in PHASES.items():
        *owners, name = path.split(".")
        holder = importlib.import_module(f"churn_jax.{module}")
        for owner in owners:
            holder = getattr(holder, owner)
        setattr(holder, name, timed(phase, getattr(holder, name)))

    def listen(event, duration, **_):
        if (name := EVENTS.get(event.rsplit("/", 1)[-1])) is not None:
            seconds[f"- {name}"] += duration

    jax.monitoring.register_event_duration_secs_listener(listen)
    run = timed("start, imports, everything else", cli.main)
    if run(["study", "digits", *words, "--quiet", "--out", folder]):
        raise SystemExit("the study failed")
    print(json.dumps(seconds))


def main() -> None:
    """Launches the study twice and prints the table."""
    if sys.argv[1:2] == ["--launch"]:
        launch(sys.argv[2], sys.argv[3:])
        return
    found, totals = [], []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        for number in range(2):
            script = str(Path(__file__).resolve())
            command = [sys.executable, script, "--launch", f"{cache}/{number}"]
            began, before = time.perf_counter(), _processor()
            done = subprocess.run(
                [*command, *sys.argv[1:]],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                cwd=Path(cache),
            )
            clock = time.perf_counter() - began
            totals.append((clock, _processor() - before))
            seconds = json.loads(done.stdout.splitlines()[-1])
            main_thread = sum(v for k, v in seconds.items() if k[0] != "-")
            seconds["start, imports, everything else"] += clock - main_thread
            found.append(seconds)
    print("| s | no programs on disk | all |\n|:--|--:|--:|")
    for phase in sorted(found[0], key=lambda p: (p[0] == "-", -found[0][p])):
        print(f"| {phase} | {found[0][phase]:.1f} | {found[1].get(phase, 0.0):.1f} |")
    for label, part in (("clock", 0), ("processor", 1)):
        cold, warm = (total[part] for total in totals)
        print(f"| **all, {label}** | **{cold:.1f}** | **{warm:.1f}** |")
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

"""Commands run by several processes on this machine, joined on the loopback."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from churn_jax.cli import main

TIMEOUT = 240
DYING = Path(__file__).with_name("dying.py")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def launch(
    words, out, index=0, program=("-m", "churn_jax.cli"), devices=1
) -> subprocess.Popen:
    """One process; its output goes to files, which cannot fill up."""
    ours = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    with (
        open(f"{out}.{index}.out", "w") as said,
        open(f"{out}.{index}.err", "w") as bad,
    ):
        return subprocess.Popen(
            [sys.executable, *program, *words, "--out", str(out)],
            env=os.environ | ours,
            stdout=said,
            stderr=bad,
        )


def joined(words, count, port=None):
    """The words of each of `count` processes."""
    port = free_port() if port is None else port
    coordinator = ["--launch.coordinator", f"localhost:{port}"]
    several = [*words, *coordinator, "--launch.num-processes", str(count)]
    return [[*several, "--launch.process-id", str(i)] for i in range(count)]


def begin(words, out, count, dying=None, late=0) -> list[subprocess.Popen]:
    """Starts them all, the second `late`; `dying` is one and where it kills itself."""
    processes: list[subprocess.Popen] = []
    try:
        for i, own in enumerate(joined(words, count)):
            program = ("-m", "churn_jax.cli")
            if dying is not None and dying[0] == i:
                program = (str(DYING), dying[1])
            time.sleep(late * i)
            assert all(process.poll() is None for process in processes)
            processes.append(launch(own, out, i, program))
    except BaseException:
        end(processes)
        raise
    return processes


def end(processes) -> None:
    """Kills what is left."""
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def codes(processes, seconds=TIMEOUT) -> list[int]:
    """Exit codes, once all have ended by themselves; none may take longer."""
    last = time.monotonic() + seconds
    try:
        for process in processes:
            process.wait(max(last - time.monotonic(), 0.1))
    finally:
        end(processes)
    return [process.returncode for process in processes]


def said(out, index=0) -> tuple[str, str]:
    """What a process printed and what it complained about."""
    return tuple(Path(f"{out}.{index}.{end}").read_text() for end in ("out", "err"))


def finish(processes, out) -> list[str]:
    """Waits for all of them, which must end well; returns what each printed."""
    last = time.monotonic() + TIMEOUT
    try:
        while any(p.poll() is None for p in processes):
            failed = any(p.poll() not in (None, 0) for p in processes)
            if failed or time.monotonic() > last:
                break  # the others would wait for it for ever
            time.sleep(0.1)
    finally:
        end(processes)
    texts = []
    for i, process in enumerate(processes):
        output, errors = said(out, i)
        texts.append(output)
        assert process.returncode == 0, errors[-3000:] + output[-1000:]
    return texts


def alone(words, out) -> None:
    """The command by this process, on one device."""
    assert main([*words, "--out", str(out)]) == 0


def together(words, out, mesh, count=2) -> list[str]:
    return finish(begin([*words, "--mesh", mesh], out, count), out)


def epochs_done(out, method) -> int:
    path = out / "methods" / method / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def stop_after(processes, out, method, epochs, index, number=signal.SIGTERM) -> None:
    """Sends a signal to one of them after so many epochs."""
    last = time.monotonic() + TIMEOUT
    while epochs_done(out, method) < epochs:
        assert time.monotonic() < last and processes[0].poll() is None
        time.sleep(0.05)
    processes[index].send_signal(number)

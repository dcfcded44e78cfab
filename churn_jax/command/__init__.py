"""Sub-commands of `churn-jax`; each is imported only when it is called."""

import importlib
from collections.abc import Callable, Sequence

__all__ = ["COMMANDS"]

COMMANDS = {
    "study": "train the methods of a preset on some data and report",
    "sweep": "train a grid of coefficients, draw it and pick the best value",
    "plan": "what a study would take on a TPU slice, by the compiler, without a TPU",
    "report": "write table and report of a study's folder again",
    "compare": "decide on an update by two versions' predictions, of any framework",
    "data": "prepare a TFDS data set for reading without TensorFlow",
    "equations": "list equation -> function -> file:line",
    "doctor": "versions, devices, mesh, and whether this machine repeats a run",
}


def command_named(name: str) -> Callable[[Sequence[str]], int]:
    """The function of a sub-command, from its words to its exit code."""
    # Each is a function of the module of its name, which is imported only now.
    homes = {"report": "study", "equations": "listing"}
    home = f"{__name__}.{homes.get(name, name)}"
    home = "churn_compare.cli" if name == "compare" else home
    return getattr(importlib.import_module(home), name)

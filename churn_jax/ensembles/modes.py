"""How networks are told to train or to evaluate."""

import inspect
from collections.abc import Callable, Iterable

__all__ = ["arguments", "mode", "stuck", "switches"]

# Names by which networks take the mode, and their value in training.
_SWITCHES = {
    "train": True,
    "training": True,
    "is_training": True,
    "deterministic": False,
    "use_running_average": False,
}


def switches(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that switch between training and evaluation.

    Example:
        >>> switches(["x", "is_training"])
        ('is_training',)
    """
    known = set(names)
    return tuple(name for name in _SWITCHES if name in known)


def arguments(function: Callable) -> tuple[str, ...]:
    """Names of a function's parameters."""
    return tuple(inspect.signature(function).parameters)


def mode(names: Iterable[str], train: bool) -> dict[str, bool]:
    """Values of switches in training or in evaluation.

    Example:
        >>> mode(["deterministic"], train=False)
        {'deterministic': True}
    """
    return {name: _SWITCHES[name] == train for name in names}


def stuck(train: bool, names: Iterable[str]) -> str:
    """The end of a message: the mode in which a layer is, and what to do about it.

    Args:
        train: the mode in which it should be.
        names: what switches the network that has the layer, if anything does.
    """
    found, wanted = ("evaluated", "trained") if train else ("trained", "evaluated")
    what = (
        f"the network's __call__ takes none of {', '.join(_SWITCHES)}: give it one and "
        "pass it on to the layer"
    )
    for name in names:
        what = f"let the network's {name} switch it"
        break
    return f"behaves as if {found} while the network is {wanted}; {what}"

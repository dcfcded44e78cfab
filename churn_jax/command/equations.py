"""`churn-jax equations`: which function computes which equation."""

import dataclasses
from collections.abc import Sequence

from churn_jax.command.options import read_options


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Lists every equation of the papers with its function, file and line."""


def equations(argv: Sequence[str]) -> int:
    """Prints the list."""
    read_options(Arguments, argv, prog="churn-jax equations")
    from churn_jax.equations import print_equations

    print_equations()
    return 0

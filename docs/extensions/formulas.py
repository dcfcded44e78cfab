"""What docstrings refer to, with the papers' equations; no Sphinx."""

import functools
from pathlib import Path
from typing import NamedTuple

from churn_jax.equations import Formula, places, read_formulas, tag
from churn_jax.equations import references as _references

FORMULAS = Path(__file__).resolve().parents[1] / "reference" / "formulas.toml"


class Reference(NamedTuple):
    """One line of a `References:` section."""

    paper: str
    label: str
    citation: str
    url: str


def references(docstring: str) -> list[Reference]:
    """The references of a docstring, in its order."""
    found = map(tag, _references(docstring))
    return [Reference(**one) for one in found if one is not None]


@functools.cache
def _formulas() -> dict[tuple[str, str], Formula]:
    return read_formulas(FORMULAS)


def of(reference: Reference) -> list[Formula]:
    """The equations that a reference names."""
    found = (_formulas().get((reference.paper, p)) for p in places(reference.label))
    return [formula for formula in found if formula is not None]

"""The quantities that a gate file may limit, as Markdown."""

from churn_compare.gates import GROUP_QUANTITIES, OF_RUNS, SHORT
from churn_compare.quantities import QUANTITIES

_SCORES = {"": "", "old": "probabilities of the old version"}
_SCORES |= {"new": "probabilities of the new version", "both": "probabilities of both"}


def quantities(_: str) -> str:
    """A table of the names after `max-` and `min-`."""
    short = {long: name for name, long in SHORT.items()}
    lines = ["| Name | What it is | Unit | Needs |", "|---|---|---|---|"]
    for name, quantity in QUANTITIES.items():
        names = [f"`{name.replace('_', '-')}`"]
        names += [f"`{short[name]}`"] if name in short else []
        of_groups = " †" if name in GROUP_QUANTITIES else ""
        needs = ["labels"] * quantity.labels + [_SCORES[quantity.scores]]
        needs += ["several runs of a version"] * (name in OF_RUNS)
        lines.append(
            f"| {', '.join(names)}{of_groups} | {_cell(quantity.formula)} | "
            f"{quantity.unit} | {', '.join(filter(None, needs))} |"
        )
    return "\n".join(lines)


def _cell(formula: str) -> str:
    """A formula as code, which may have bars; words as they are."""
    if any(sign in formula for sign in "|^[_"):
        return f"`{formula}`".replace("|", "\\|")
    return formula

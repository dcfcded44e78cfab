"""The account of each side: columns read, left out, and doubtful."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from churn_compare.example_ids import PredictionsError, names_of

_LISTED = 12  # of what is left out


class Account(NamedTuple):
    """The account of one side."""

    # Roles and their columns, such as "id" or "prediction (column pred)".
    read: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # columns, rows or measures that no number uses
    names: tuple[str, ...] = ()  # columns of `left_out`, without the reasons

    def using(self, columns: Mapping[str, str]) -> "Account":
        """The account once options have read `columns` (name to purpose)."""
        named = zip(self.left_out, self.names)
        used = {of: name for of, name in named if name in columns}
        read = (*self.read, *(f"{columns[n]} (column {n})" for n in used.values()))
        return Account(read, tuple(of for of in self.left_out if of not in used))

    def text(self) -> str:
        """The account in one clause."""
        left, more = self.left_out[:_LISTED], len(self.left_out) - _LISTED
        left += (f"{more} more",) if more > 0 else ()
        parts = [("read", self.read), ("left out", left)]
        return "; ".join(f"{what}: {', '.join(of)}" for what, of in parts if of)


def account_lines(sides: Sequence[tuple[str, Account | None]]) -> tuple[str, ...]:
    """One line per side, or one line for all where they are equal."""
    found = {name: account.text() for name, account in sides if account is not None}
    texts = set(found.values())
    if len(found) == len(sides) > 1 and len(texts) == 1:
        found = {"Both" if len(sides) == 2 else "All": texts.pop()}
    return tuple(f"{name}: {text}." for name, text in found.items() if text)


class Doubt(NamedTuple):
    """Something that looks wrong in what was read."""

    name: str  # of `--confirm`, one of `DOUBTS`
    sentence: str  # without a full stop; names the option that repairs it, if any


DOUBTS: dict[str, str] = {
    "decisions": "most decisions are not the most probable class",
    "similar-classes": "names of classes that differ in spelling only",
    "missing-labels": "labels such as NA that no version predicts",
    "many-classes": "more classes than half the examples",
    "below-chance": "a side that is right less often than by chance",
    "never-right": "answers of which none is like its target",
    "inputs": "inputs that the update changes under the same id",
    "targets": "right answers that the update changes under the same id",
    "renamed-classes": "a class that is never predicted, another in its place",
    "logits": "logits that are at least 0 and sum to one, as probabilities do",
    "row-order": "no ids, though a column shows another order of the examples",
    "same-file": "one file is both the old and the new version",
    "score-columns": "a column of scores that may not be of a class",
}
"""The names that `--confirm` accepts, with what they confirm."""


def settle(doubts: Iterable[Doubt], confirmed: Collection[str]) -> tuple[str, ...]:
    """Notes about confirmed doubts; raises for doubts that are not."""
    confirmed = names_of(confirmed)
    if unknown := sorted(set(confirmed) - DOUBTS.keys()):
        raise ValueError(
            f"--confirm takes {', '.join(DOUBTS)}; got {', '.join(unknown)}"
        )
    found = list(doubts)
    if refused := [doubt for doubt in found if doubt.name not in confirmed]:
        said = "; ".join(doubt.sentence for doubt in refused)
        names = " ".join(dict.fromkeys(doubt.name for doubt in refused))
        raise PredictionsError(f"{said}. If this is right, add --confirm {names}")
    return tuple(f"Confirmed: {doubt.sentence}." for doubt in found)

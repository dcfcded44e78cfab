"""How ids and names of classes are written, and which of them look alike."""

import collections
import re
import unicodedata
from collections.abc import Collection, Sequence

import numpy as np

from churn_compare.example_ids import as_ids, check_unique, some
from churn_compare.reading.account import Doubt

_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"  # of width zero
_OUTER = re.compile(rf"^[\s{_INVISIBLE}]+|[\s{_INVISIBLE}]+$")
_JOINTS = re.compile(r"[\s_]+|(?<=\w)-(?=\w)")
_WHOLE = re.compile(r"^([+-]?\d+)\.0*$")
_THOUSANDS = re.compile(r"(?<=\d)[,'’](?=\d{3}(?!\d))")
_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)")


def composed(text: str) -> str:
    """The composed form; canonically equivalent texts are equal in it."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def stripped(text: str) -> str:
    """The text without outer space and invisible characters."""
    return _OUTER.sub("", text)


def ids_without_space(ids: np.ndarray | None) -> np.ndarray | None:
    """Ids without outer space."""
    if ids is None or ids.dtype.kind != "U":
        return ids
    return check_unique(as_ids(np.array([stripped(text) for text in ids.tolist()])))


def _visible(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def _difference(pairs: Sequence[tuple[str, str]]) -> str:
    """In what texts that look alike differ."""
    space = all(stripped(a) == stripped(b) for a, b in pairs)
    return "outer space" if space else "spelling"


def similar_classes(
    names: Sequence[str], sides: Sequence[Collection[int]], labels: Collection[int]
) -> list[Doubt]:
    """A doubt if classes look alike and one spelling is not known everywhere."""
    groups = collections.defaultdict(list)
    for number, name in enumerate(names):
        plain = _JOINTS.sub("", _visible(name).casefold()) or name
        groups[plain].append(number)
    found = []
    for first, *others in groups.values():
        group = {first, *others}
        known = [group <= set(side) for side in sides]
        # Who knows both spellings, tells a from A.
        if all(known) or (any(known) and group <= set(labels)):
            others = [c for c in others if stripped(names[c]) == stripped(names[first])]
        found += [(names[first], names[other]) for other in others]
    if not found:
        return []
    repair = "--strip removes it"
    if _difference(found) == "spelling":
        repair = "write them in one way, or give a --class-map with lines old,new"
    shown = some([f"{a!r} and {b!r}" for a, b in found])
    said = f"classes {shown} differ only in {_difference(found)}: {repair}"
    return [Doubt("similar-classes", said)]


def similar_ids(only_a: np.ndarray, only_b: np.ndarray) -> str:
    """A clause about ids of two sides that only look alike; "" without any."""
    if only_a.dtype.kind != "U" and only_b.dtype.kind != "U":
        return ""

    def plain(text: str) -> str:
        text = _THOUSANDS.sub("", "".join(_visible(text).split()))
        return _ZEROS.sub("", _WHOLE.sub(r"\1", text)).casefold()

    there = {plain(text): text for text in only_a.astype(str).tolist()}
    others = ((plain(text), text) for text in only_b.astype(str).tolist())
    pairs = [(there[key], text) for key, text in others if key in there]
    if not pairs:
        return ""
    kind, (a, b) = _difference(pairs), map(ascii, pairs[0])
    repair = "add --strip" if kind == "outer space" else "write them in one way"
    return f"; {len(pairs):,} of them differ only in {kind} ({a}, {b}): {repair}"

"""How ids and names of classes are written, and which of them look alike."""

import collections
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from churn_compare.example_ids import some
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


def twice(texts: Iterable[str]) -> list[str]:
    """The texts that occur more than once, each once."""
    return [text for text, count in collections.Counter(texts).items() if count > 1]


def stripped(text: str) -> str:
    """The text without outer space and invisible characters."""
    return _OUTER.sub("", text)


def _visible(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


def _unspaced(text: str) -> str:
    return "".join(text.split())


def _without_separators(text: str) -> str:
    return _THOUSANDS.sub("", text)


def _without_zeros(text: str) -> str:
    return _ZEROS.sub("", _WHOLE.sub(r"\1", text))


_DIFFERENCES: dict[str, Callable[[str], str]] = {
    "outer space": stripped,
    "spaces": _unspaced,
    "capitals": str.casefold,
    "zeros": _without_zeros,
    "the Unicode form": _visible,
    "separators of thousands": _without_separators,
    "spaces, hyphens or underscores": lambda text: _JOINTS.sub("", text),
}


def difference(a: str, b: str) -> str:
    """In what two texts that look alike differ."""
    for name, plain in _DIFFERENCES.items():
        if plain(a) == plain(b):
            return name
    return "the way they are written"


def _plain(text: str) -> str:
    """Equal for names of classes that look alike."""
    return _JOINTS.sub("", _visible(text).casefold()) or text


def similar_classes(
    names: Sequence[str], sides: Sequence[Collection[int]], labels: Collection[int]
) -> list[Doubt]:
    """A doubt if classes look alike and one spelling is not known everywhere."""
    groups = collections.defaultdict(list)
    for number, name in enumerate(names):
        groups[_plain(name)].append(number)
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
    kinds = [difference(*pair) for pair in found]
    repair = (
        "write them in one way, or give --class-map FILE.csv with the line old,new and "
        f"one for each class, such as {found[0][1]},{found[0][0]}"
    )
    if set(kinds) == {"outer space"}:
        repair = "--strip removes it"
    said = "; ".join(
        f"{a!r} and {b!r} differ only in {kind}"
        for (a, b), kind in zip(found[:3], kinds)
    )
    more = f" (and {len(found) - 3} further pairs)" if len(found) > 3 else ""
    return [Doubt("similar-classes", f"classes {said}{more}: {repair}")]


def similar_ids(only_a: np.ndarray, only_b: np.ndarray) -> str:
    """A clause about ids of two sides that only look alike; "" without any."""
    if only_a.dtype.kind != "U" and only_b.dtype.kind != "U":
        return ""

    def plain(text: str) -> str:
        text = _without_separators(_unspaced(_visible(text)))
        return _without_zeros(text).casefold()

    there = {plain(text): text for text in only_a.astype(str).tolist()}
    pairs = [
        (there[key], text)
        for text in only_b.astype(str).tolist()
        if (key := plain(text)) in there
    ]
    if not pairs:
        return ""
    counts = collections.Counter(difference(*pair) for pair in pairs)
    kind, count = counts.most_common(1)[0]
    example = next(pair for pair in pairs if difference(*pair) == kind)
    repair = "add --strip" if kind == "outer space" else "write them in one way"
    return (
        f"; {count:,} of them differ only in {kind} ({some([*map(ascii, example)])}): "
        f"{repair}"
    )

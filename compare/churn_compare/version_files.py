"""Which files of a folder are versions of a model, and in what order they came."""

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from churn_compare.example_ids import PredictionsError, twice
from churn_compare.number_text import listed
from churn_compare.reading.contents import ENDINGS, parts_of
from churn_compare.store import INDEX

_SHOWN = 5  # names that a message lists
ABOUT_ALL = ("labels", "ids", "slices")  # files about all versions
PREDICTIONS = "predictions"  # the file in a folder of its own


@dataclasses.dataclass(frozen=True)
class VersionFiles:
    """The versions of a folder, the oldest first."""

    names: tuple[str, ...]  # of the versions
    paths: tuple[Path, ...]  # of their predictions
    about_all: dict[str, Path]  # those of `ABOUT_ALL` that are there
    notes: tuple[str, ...] = ()  # sentences about what was left out


def find_versions(
    folder: str | os.PathLike,
    order: Sequence[str] | None = None,
    used: Sequence[Path] = (),
) -> VersionFiles:
    """The versions in a folder."""
    # A version is a file of predictions, or a folder with `predictions.npz` (or another
    # ending), the `index.json` of shards, a folder `predictions` of shards, or a folder
    # of the parts of a table. Files
    # called `labels`, `ids` and `slices` are about all versions. In a study's folder
    # the versions are its rows.
    folder = Path(folder)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise PredictionsError(f"{folder}: the folder of versions {what}")
    if (folder / INDEX).is_file():
        raise PredictionsError(
            f"{folder}: these are the shards of one version; a comparison needs two"
        )
    if parts := parts_of(folder):
        raise PredictionsError(
            f"{folder}: its {len(parts)} files, such as {parts[0].name}, are parts of "
            "one table, not versions; a comparison needs two"
        )
    rows = _rows_of_study(folder)
    inside = folder / "methods" if rows is not None else folder
    given = set(map(os.path.realpath, used))  # `Path.resolve` raises for link loops
    found: dict[str, Path] = {}
    about_all: dict[str, Path] = {}
    for entry in sorted(inside.iterdir()):
        if entry.name.startswith(".") or os.path.realpath(entry) in given:
            continue
        path = _predictions_of(entry)
        if path is None:
            continue
        name = _stem(entry)
        known = about_all if entry.is_file() and name in ABOUT_ALL else found
        if name in known:
            raise PredictionsError(
                f"{folder}: {known[name].relative_to(folder)} and "
                f"{path.relative_to(folder)} are both called {name!r}; only one can be"
            )
        known[name] = path
    names, notes = _ordered(folder, found, order, rows)
    if len(names) < 2:
        there = f"only {names[0]!r}" if names else "none"
        raise PredictionsError(
            f"{folder}: a comparison needs two versions or more, {there} found; a "
            f"version is a file ({', '.join(ENDINGS)}) or a folder with such a file "
            f"called {PREDICTIONS!r}"
        )
    return VersionFiles(names, tuple(found[name] for name in names), about_all, notes)


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sorting key by which numbers in names are ordered as numbers."""
    parts = re.split(r"([0-9]+)", name)
    return [
        (int(part), "") if i % 2 else (0, part.casefold())
        for i, part in enumerate(parts)
    ], name


def _predictions_of(entry: Path) -> Path | None:
    """The file of predictions that a folder entry is or contains."""
    if entry.is_file():
        return entry if entry.name.lower().endswith(ENDINGS) else None
    if not entry.is_dir():
        return None
    paths = [entry / f"{PREDICTIONS}{ending}" for ending in ENDINGS]
    there = [p for p in paths if p.is_file() or (p.is_dir() and parts_of(p))]
    shards = entry / PREDICTIONS
    there += [shards] if (shards / INDEX).is_file() else []
    if len(there) > 1:
        raise PredictionsError(
            f"{entry}: both {there[0].name} and {there[1].name} are there; only one "
            "can be the version's predictions"
        )
    if (entry / INDEX).is_file() or parts_of(entry):
        return entry
    return there[0] if there else None


def _stem(path: Path) -> str:
    """The name without an ending; also folders of parts are called `v1.parquet`."""
    lengths = [len(end) for end in ENDINGS if path.name.lower().endswith(end)]
    return path.name[: len(path.name) - max(lengths, default=0)]


def _rows_of_study(folder: Path) -> list[str] | None:
    """The rows of a study in its order; None if the folder is not a study."""
    if not (folder / "study.json").is_file() or not (folder / "methods").is_dir():
        return None
    try:
        record = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        return [str(method["name"]) for method in record["methods"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # what is in `methods` can still be compared, by name


def _ordered(
    folder: Path,
    found: dict[str, Path],
    order: Sequence[str] | None,
    rows: list[str] | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The versions, the oldest first, and a note about those left out."""
    natural = sorted(found, key=natural_order)
    if order is None:
        place = {name: i for i, name in enumerate(rows or ())}
        return tuple(sorted(natural, key=lambda n: place.get(n, len(place)))), ()
    order = tuple(order)
    if again := [repr(name) for name in sorted(twice(order))]:
        said = listed(again, _SHOWN)
        raise PredictionsError(f"the order names {said} more than once")
    if lacking := [repr(name) for name in order if name not in found]:
        there = listed([*map(repr, natural)], _SHOWN) or "none"
        raise PredictionsError(
            f"{folder}: {len(lacking)} of the {len(order)} versions in the order are "
            f"not there, for example {listed(lacking, _SHOWN)}; it has {there}"
        )
    left = listed([repr(name) for name in natural if name not in order], _SHOWN)
    notes = (f"Left out, since the order does not name them: {left}.",)
    return order, notes if left else ()

"""Comparison of all versions in a folder, and of each update on its own."""

import dataclasses
import functools
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from churn_compare.array_files import read_npy
from churn_compare.comparison import compare_pair
from churn_compare.display import CompareResult, VersionsResult
from churn_compare.estimates import check_options
from churn_compare.example_ids import PredictionsError, match_ids, rows_of, twice
from churn_compare.flip_counts import version_matrices
from churn_compare.gates import Gating, as_gates, waivers_of
from churn_compare.groups import NEEDLESS, waived_rows
from churn_compare.number_text import listed
from churn_compare.pair import Kind, Pair, Table, in_pairs
from churn_compare.reading.class_values import NO_LABEL, all_numbers
from churn_compare.reading.contents import ENDINGS, column_names, parts_of
from churn_compare.reading.join import join
from churn_compare.reading.labels import (
    read_clusters,
    read_ids,
    read_labels,
    read_slices,
)
from churn_compare.reading.sides import check_used, read_side
from churn_compare.result import Waiver
from churn_compare.scanning import scan
from churn_compare.store import INDEX
from churn_compare.stored_logits import StoredLogits

_PARTLY = (
    "some examples have no label; in a folder, all examples must have labels, or none"
)
_IN_MEMORY = 512 << 20  # bytes of scores; those of more versions stay on the disk
_SHOWN = 5  # names that a message lists
ABOUT_ALL = ("labels", "ids", "slices")  # files about all versions
PREDICTIONS = "predictions"  # stem of the file in a version's folder


def compare_versions(
    folder: str | os.PathLike,
    *,
    labels: Any = None,
    slices: Any = None,
    clusters: Any = None,
    ids: Any = None,
    kind: Kind | None = None,
    class_map: Literal["identity"] | None = None,
    on_missing: Literal["error", "intersect"] = "error",
    confirm: Sequence[str] = (),
    order: Sequence[str] | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    prediction_column: str | None = None,
    gates: Gating = (),
    waivers: Sequence[Waiver] = (),
    **options: Any,
) -> VersionsResult:
    """Compares all versions in a folder.

    Each version is compared with the one before it as by `compare`, and the last with
    the first; churn and negative flips are computed for every two versions. All numbers
    are for the same examples, those that every version has.

    Args:
        folder: folder with a file of predictions per version, or a folder per version
            with `predictions.npz`, or the folder of a study; see `find_versions`. Its
            files `labels`, `slices` and `ids` are used for arguments not given.
        labels: labels as in `compare`, if no version has any; other arguments are also
            as in `compare`.
        class_map: "identity" if equal numbers are equal classes although the versions
            have different numbers of classes.
        order: names of the versions, oldest first; others are left out.
        gates: conditions on every step.
        waivers: negative flips that gates on their rate leave out in every step.
        **options: `equivalent`, `pool`, `regressions`, `level`, `resamples`, `seed`.

    Returns:
        The `VersionsResult`; `result.passed` is True if all gates hold in all steps.

    Raises:
        PredictionsError: if there are fewer than two versions, or they cannot be read,
            used or joined. A `ValueError`.
        ValueError: if an argument or a gate is invalid.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, classes in (("v1", [0, 1, 1, 0]), ("v2", [0, 1, 0, 0])):
        ...         np.save(Path(folder, f"{name}.npy"), classes)
        ...     found = compare_versions(folder, labels=[0, 1, 1, 1])
        >>> found.names, found.churn[0, 1], found.negative_flip_rate[0, 1]
        (('v1', 'v2'), np.float64(0.25), np.float64(0.25))
    """
    if isinstance(class_map, Mapping) or class_map not in (None, "identity"):
        raise ValueError(
            "a class map is for two versions; for a folder give class names in the "
            "files, or --class-map identity if equal numbers are equal classes"
        )
    check_options(**options)
    wanted = as_gates(gates)
    given = [Path(g) for g in (labels, slices, ids) if isinstance(g, str | os.PathLike)]
    files = find_versions(folder, order, given)
    ids = files.about_all.get("ids") if ids is None else ids
    slices = files.about_all.get("slices") if slices is None else slices
    labels = files.about_all.get("labels") if labels is None else labels
    # Read once, not for every version.
    ids = None if ids is None else read_ids(ids, id_column)
    named, without = isinstance(clusters, str), ""
    if clusters is not None and (not named or clusters in column_names(slices)):
        clusters = read_clusters(clusters, slices, id_column)
        without = clusters.column
    slices = None if slices is None else read_slices(slices, id_column, without)
    if labels is not None:
        labels = read_labels(labels, id_column, label_column)
    options["confirm"] = confirm
    judged = {"gates": wanted, "waivers": waivers_of(gates, waivers)}
    with tempfile.TemporaryDirectory() as spare:
        columns = {"id_column": id_column, "prediction_column": prediction_column}
        columns |= {"label_column": label_column if labels is None else None}
        read = functools.partial(read_side, ids=ids, kind=kind, **columns)
        sides = _read(files, read, Path(spare))
        check_used(ids, sides, columns)
        about = {"labels": _labels_of_one(sides) if labels is None else labels}
        about |= {"slices": slices, "clusters": clusters, "class_map": class_map}
        about |= {"on_missing": on_missing, "confirm": confirm}
        joined = functools.partial(join, **about)
        pairs: list[Pair] = []
        for two in itertools.pairwise(sides):
            pair = joined(*two)
            if pairs and np.array_equal(pair.ids, pairs[0].ids):  # one copy is enough
                same = {"ids": pairs[0].ids, "slices": pairs[0].slices}
                pair = dataclasses.replace(pair, **same)
            pairs.append(pair)
        if any(pair.partial for pair in pairs):
            raise PredictionsError(_PARTLY)
        each = (pair.ids for pair in pairs)
        examples = functools.reduce(lambda a, b: match_ids(a, b).ids, each)
        if not len(examples):
            raise PredictionsError("there is no example that all versions have")
        pairs = [_on_examples(pair, examples) for pair in pairs]
        every = [[*map(pair.class_name, range(pair.classes))] for pair in pairs]
        named = dict.fromkeys(itertools.chain(*every))
        number = dict(zip(named, range(len(named))))  # the same class in all pairs
        numbers = [np.array([number[name] for name in of], np.int32) for of in every]
        steps: list[CompareResult] = []
        predicted: list[np.ndarray] = []
        for pair, own in zip(pairs, numbers, strict=True):
            scanned = scan(pair)
            steps.append(compare_pair(pair, scanned=scanned, **judged, **options))
            if not predicted:
                predicted.append(own[scanned.old.predicted])
            predicted.append(own[scanned.new.predicted])
        whole = steps[0]
        if len(steps) > 1:
            ends = _on_examples(joined(sides[0], sides[-1]), examples)
            scanned = scan(ends)
            if all(step.paired for step in steps):  # so are its ends
                scanned = in_pairs(scanned)
            whole = compare_pair(ends, scanned=scanned, **options)
    truth, accuracy = pairs[0].labels, ()
    if truth is not None:  # each version but the first is new in one step
        accuracy = steps[0]["accuracy_old"], *(of["accuracy_new"] for of in steps)
    truth = None if truth is None else numbers[0][truth]
    new_chains = (not step.paired for step in steps)
    chains = [*itertools.accumulate(new_chains, initial=0)]
    found = version_matrices(predicted, truth, chains)
    per_run = ("flips", "version")
    matrices = {name: of for name, of in vars(found).items() if name not in per_run}
    notes = [*files.notes, *(n for step in steps for n in (*step.read, *step.notes))]
    # A waiver is needless if it is in every step.
    notes = [note for note in notes if NEEDLESS not in note]
    used = {w for step in steps if step.waived for w in step.waived.waivers}
    rest = [w for w in judged["waivers"] if w not in used]
    notes += waived_rows(rest, examples, np.zeros(len(examples)))[2] if rest else ()
    return VersionsResult(
        versions=(steps[0].old, *(step.new for step in steps)),
        examples=len(examples),
        level=whole.level,
        accuracy=accuracy,
        **matrices,
        steps=tuple(steps),
        whole=whole,
        notes=tuple(dict.fromkeys(notes)),
    )


def _read(
    files: "VersionFiles", read: Callable[..., Table], spare: Path
) -> list[Table]:
    """All versions, each read once; what exceeds memory is stored in `spare`."""
    sides, held = [], 0
    for number, (name, path) in enumerate(zip(files.names, files.paths, strict=True)):
        side = read(path, name)
        if not isinstance(side.values, np.memmap | StoredLogits):
            held += side.values.nbytes
            if held > _IN_MEMORY:
                held -= side.values.nbytes
                file = spare / f"{number}.npy"
                np.save(file, side.values)
                side = dataclasses.replace(side, values=read_npy(file))
        sides.append(side)
    return sides


def _labels_of_one(sides: Sequence[Table]) -> Any:
    """Labels of one version, for the others; None if all or none have labels."""
    for side in sides:
        if side.labels is not None and (side.labels == NO_LABEL).any():
            raise PredictionsError(f"{side.name}: {_PARTLY}")
    having = [side for side in sides if side.labels is not None]
    if not having or len(having) == len(sides):
        return None
    side, labels = having[0], np.asarray(having[0].labels)
    names = side.label_names
    if names is None and not all_numbers(side.class_names or ()):
        names = side.class_names
    if names is not None and labels.max(initial=-1) < len(names):
        labels = np.array(names)[labels]  # other versions may have other numbers
    return read_labels(
        labels if side.ids is None else {"id": side.ids, "label": labels}
    )


def _on_examples(pair: Pair, ids: np.ndarray) -> Pair:
    """The pair on the examples `ids`, in that order."""
    if np.array_equal(pair.ids, ids):
        return pair
    return dataclasses.replace(pair.at(rows_of(ids, pair.ids)), ids=ids)


# The files of a folder


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
    # ending), the `index.json` of shards, or a folder `predictions` of shards. In a
    # study's folder the versions are its rows.
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
    left: list[str] = []
    for entry in sorted(inside.iterdir()):
        if entry.name.startswith(".") or os.path.realpath(entry) in given:
            continue
        path = _predictions_of(entry)
        if path is None:
            left.append(entry.name)
            continue
        lengths = [len(of) for of in ENDINGS if entry.name.lower().endswith(of)]
        name = entry.name[: len(entry.name) - max(lengths, default=0)]
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
    if left:
        said = f"Left out, since they have no predictions: {listed(left, _SHOWN)}."
        notes = (*notes, said)
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
    there = [path for path in paths if path.exists()]
    shards = entry / PREDICTIONS
    there += [shards] if (shards / INDEX).is_file() else []
    if len(there) > 1:
        raise PredictionsError(
            f"{entry}: both {there[0].name} and {there[1].name} are there; only one "
            "can be the version's predictions"
        )
    if (entry / INDEX).is_file() or parts_of(entry):  # refused when it is read
        return entry
    return there[0] if there else None


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

    def shown(names: Iterable[str]) -> str:
        return listed([*map(repr, names)], _SHOWN)

    order = tuple(order)
    if again := twice(order):
        raise PredictionsError(f"the order names {shown(sorted(again))} more than once")
    if lacking := [name for name in order if name not in found]:
        raise PredictionsError(
            f"{folder}: {len(lacking)} of the {len(order)} versions in the order are "
            f"not there, for example {shown(lacking)}; it has "
            f"{shown(natural) or 'none'}"
        )
    left = shown(name for name in natural if name not in order)
    notes = (f"Left out, since the order does not name them: {left}.",)
    return order, notes if left else ()

"""Hundreds of spoiled files: the right join or one sentence, never anything else.

Each example has a number that shows in its scores, so that after a join it can be told
whether a row belongs to its id.
"""

import csv
import dataclasses
import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from churn_compare import join, read_side, scan
from churn_compare.store import PredictionsError

N, C = 24, 4
NUMBERS = np.arange(N)
CLASSES = {"old": (NUMBERS * 7 + 1) % C, "new": (NUMBERS * 5 + 2) % C}
LABELS = NUMBERS * 3 % C
IDS = {
    "small": [3 * n - 5 for n in range(N)],
    "large": [2**62 + n for n in range(N)],
    "text": [f"image {n}, left" for n in range(N)],
    "unicode": [f"Ω“{n}” 画" for n in range(N)],
    "padded": [f"{n:04}" for n in range(N)],
}
NAMES = ("cat", 'the "dog"', "Füchse, rot", "9 lives")
NAMED_FORMATS = ("csv", "csv.gz", "parquet", "npz")  # that say how classes are called
FORMATS = (*NAMED_FORMATS, "lists.parquet")


@dataclasses.dataclass
class File:
    """What will be written: rows and columns can still be spoiled."""

    kind: str
    numbers: np.ndarray  # of the examples, row by row
    ids: list
    labels: list
    classes: np.ndarray
    columns: list[str]  # of the scores
    scores: np.ndarray
    heads: dict[str, str]  # id, label, prediction: the names of their columns
    twice: bool = False

    def rows(self, picked):
        self.numbers = self.numbers[picked]
        self.ids = [self.ids[i] for i in picked]
        self.labels = [self.labels[i] for i in picked]
        self.classes, self.scores = self.classes[picked], self.scores[picked]


def scores_of(side, kind):
    """`[N, C]` with the number of the example in them."""
    scores = np.full((N, C), 0.01 * NUMBERS[:, None], np.float32)
    scores[NUMBERS, CLASSES[side]] += 4
    if kind == "probabilities":
        scores = np.exp(scores * (1 + 0.05 * NUMBERS[:, None]))
        scores /= scores.sum(axis=1, keepdims=True)
    return scores.astype(np.float32)


def new_file(side, kind, ids, names):
    prefix = {"logits": "logit_", "probabilities": "prob_"}.get(kind, "")
    labels = [names[c] if names else int(c) for c in LABELS]
    columns = [f"{prefix}{names[c] if names else c}" for c in range(C)]
    heads = {"id": "id", "label": "label", "prediction": "prediction"}
    rows = kind, NUMBERS.copy(), list(ids), labels, CLASSES[side]
    return File(*rows, columns, scores_of(side, kind), heads)


def spoiled(file, change, names, rng):
    """Changes a file; says what must come of it.

    "right", the right join; "error"; "either"; or "spoiled", where nothing can be said.
    "missing", "twice" and "reordered" depend on how the file is written and joined.
    """
    match change:
        case "permuted":
            file.rows(rng.permutation(len(file.numbers)))
            return "right"
        case "rows_dropped":
            file.rows(np.sort(rng.permutation(N)[: rng.integers(1, N)]))
            return "missing"
        case "no_rows":
            file.rows([])
            return "error"
        case "row_twice":
            file.rows([*range(N), int(rng.integers(N))])
            return "error"
        case "id_changed":
            other = 10**9 if isinstance(file.ids[0], int) else "another"
            file.ids[rng.integers(N)] = other
            return "missing"
        case "id_empty":
            file.ids[rng.integers(N)] = None
            return "error"
        case "ids_are_text":
            file.ids = [str(i) for i in file.ids]
            return "right"
        case "ids_are_fractions":
            file.ids = [n + 0.5 for n in range(N)]
            return "error"
        case "columns_reordered":
            if file.kind == "classes":
                return "right"
            order = np.roll(np.arange(C), rng.integers(1, C))
            file.columns = [file.columns[c] for c in order]
            file.scores = file.scores[:, order]
            return "reordered"
        case "column_dropped":
            if file.kind == "classes":
                return "right"
            gone = int(rng.integers(C))
            file.columns.pop(gone)
            file.scores = np.delete(file.scores, gone, axis=1)
            return "spoiled" if names else "error"
        case "column_twice":
            file.twice = True
            return "twice"
        case "head_renamed":
            which = str(rng.choice(["id", "label", "prediction"]))
            heads = ["", "other", "id", "Label", "id\n", "x" * 999]
            file.heads[which] = str(rng.choice(heads))
            return "either"
        case "nan_score":
            file.scores[rng.integers(N), rng.integers(C)] = np.nan
            return "right" if file.kind == "classes" else "error"
        case "negative_or_large":
            if file.kind != "probabilities":
                return "right"
            file.scores[rng.integers(N)] *= rng.choice([-3, 100])
            return "error"
        case "label_wrong":
            row = int(rng.integers(N))
            others = [x for x in (*NAMES, "whale") if x != file.labels[row]]
            if names is None:
                others = [-1, 7, 2**40]
            file.labels[row] = others[rng.integers(len(others))]
            return "error"
        case "label_empty":
            file.labels[rng.integers(N)] = None
            return "right"  # the other side has it


CHANGES = (
    "permuted rows_dropped no_rows row_twice id_changed id_empty ids_are_text "
    "ids_are_fractions columns_reordered column_dropped column_twice head_renamed "
    "nan_score negative_or_large label_wrong label_empty"
).split()


def array(values):
    """An array of what fits; gaps make it one of text, where they are empty."""
    if any(v is None for v in values):
        return np.array(["" if v is None else str(v) for v in values])
    return np.array(values) if values else np.zeros(0, np.int64)


def write(file, path, style):
    """Writes the file in one of `FORMATS`."""
    heads = file.heads
    first = {heads["id"]: file.ids, heads["label"]: file.labels}
    if file.kind == "classes":
        first[heads["prediction"]] = [
            file.columns[c] if c < len(file.columns) else "" for c in file.classes
        ]
    if style == "npz":
        arrays = {name: array(values) for name, values in first.items()}
        if file.kind != "classes":
            arrays[file.kind] = file.scores
            names = [c.partition("_")[2] for c in file.columns]
            if names != [str(c) for c in range(len(names))]:
                arrays["class_names"] = np.array(names)
        with open(path, "wb") as out:
            np.savez(out, **{name.replace("\n", ""): a for name, a in arrays.items()})
        return
    columns = list(first.items())
    if file.kind != "classes":
        columns += list(zip(file.columns, file.scores.T.tolist()))
    if style == "lists.parquet" and file.kind != "classes":
        numbers = [int(name.partition("_")[2]) for name in file.columns]
        scores = file.scores[:, np.argsort(numbers)]
        columns = [*first.items(), (file.kind, list(scores))]
    if file.twice:
        columns.append(columns[0])
    if style.endswith("parquet"):
        arrays = [pa.array(values) for _, values in columns]
        table = pa.Table.from_arrays(arrays, [name for name, _ in columns])
        pq.write_table(table, path, row_group_size=7, write_page_checksum=True)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in columns])
    writer.writerows(zip(*(values for _, values in columns), strict=True))
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if style == "csv.gz" else content)


def rows_that_are_wrong(pair, ids, names):
    """How many joined examples have scores, classes or labels of another one."""
    number = {str(i): n for n, i in enumerate(ids)}
    numbers = np.array([number.get(str(i), -1) for i in pair.ids])
    assert len(set(pair.ids.tolist())) == pair.examples
    scanned = scan(pair)
    called = np.array([pair.class_name(c) for c in range(pair.classes)])
    names = np.array(names or [str(c) for c in range(C)])
    wrong = numbers < 0
    for side, found in (("old", scanned.old), ("new", scanned.new)):
        wrong |= called[found.predicted[0]] != names[CLASSES[side][numbers]]
        values, rows = getattr(pair, side).values, getattr(pair, f"{side}_rows")
        if values.ndim == 3:
            values = values[0] if rows is None else values[0][rows]
            want = scores_of(side, getattr(pair, side).kind)[numbers]
            values, want = np.sort(values, axis=1), np.sort(want, axis=1)
            wrong |= ~np.isclose(values, want, rtol=1e-4).all(axis=1)
    if pair.labels is not None:
        wrong |= called[pair.labels] != names[LABELS[numbers]]
    return int(wrong.sum())


def has_all_classes(pair):
    """True if no byte of the name of a class has changed."""
    sides = [side for side in (pair.old, pair.new) if side.kind != "classes"]
    names = sorted(pair.class_names or NAMES)
    return names == sorted(NAMES) and all(side.classes == C for side in sides)


class Case:
    """Two files of one world, written after a change to one of them."""

    def __init__(self, seed, folder, changes=CHANGES):
        rng = self.rng = np.random.default_rng(seed)
        self.ids = IDS[str(rng.choice(list(IDS)))]
        self.names = NAMES if rng.integers(2) else None
        self.on_missing = str(rng.choice(["error", "intersect"]))
        self.paths, self.styles, files = [], [], []
        for side in ("old", "new"):
            kind = str(rng.choice(["logits", "probabilities", "classes"]))
            style = str(rng.choice(FORMATS if self.names is None else NAMED_FORMATS))
            file = new_file(side, kind, self.ids, self.names)
            if rng.integers(2):
                spoiled(file, "permuted", self.names, rng)
            files.append(file)
            self.styles.append(style)
            self.paths.append(folder / f"{side}-{seed}.{style}")
        self.changed = int(rng.integers(2))
        change = changes[seed % len(changes)]
        self.expected = spoiled(files[self.changed], change, self.names, rng)
        style = self.styles[self.changed]
        if self.expected == "twice":
            self.expected = "right" if style == "npz" else "error"
        if self.expected == "reordered":
            bare = style == "npz" and not self.names
            self.expected = "error" if bare else "right"
        if self.expected == "missing":
            self.expected = "error" if self.on_missing == "error" else "right"
        for file, path, style in zip(files, self.paths, self.styles):
            write(file, path, style)
        self.what = (change, self.styles, [f.kind for f in files], self.names)

    def join(self):
        sides = [read_side(path) for path in self.paths]
        return join(*sides, on_missing=self.on_missing)


@pytest.mark.parametrize("part", range(8))
def test_a_spoiled_file_is_joined_rightly_or_refused(part, tmp_path):
    for seed in range(part, 18 * len(CHANGES), 8):
        case = Case(seed, tmp_path)
        try:
            pair = case.join()
            scan(pair)
        except PredictionsError as error:
            assert case.expected != "right", (seed, case.what, error)
            assert str(error), (seed, case.what)
        else:
            assert case.expected != "error", (seed, case.what)
            if case.expected != "spoiled":
                wrong = rows_that_are_wrong(pair, case.ids, case.names)
                assert not wrong, (seed, case.what)


def _spoil(content, rng):
    """Cuts a file, or changes a few bytes; returns how many."""
    if rng.integers(3) == 0:
        return content[: rng.integers(len(content))], 1
    changed, count = bytearray(content), int(rng.integers(1, 4))
    for place in rng.integers(0, len(content), count):
        likely = rng.choice(list(b',\n"9'))
        changed[place] = rng.integers(256) if rng.integers(2) else likely
    return bytes(changed), count


@pytest.mark.parametrize("part", range(4))
def test_changed_bytes_spoil_no_other_row(part, tmp_path):
    """A byte may change its own row, or the name of a class."""
    for seed in range(part, 160, 4):
        case = Case(seed, tmp_path, ["permuted"])
        path = case.paths[case.changed]
        content, count = _spoil(path.read_bytes(), case.rng)
        path.write_bytes(content)
        try:
            pair = case.join()
            scan(pair)
        except PredictionsError as error:
            assert str(error), seed
        else:
            if has_all_classes(pair):
                wrong = rows_that_are_wrong(pair, case.ids, case.names)
                assert wrong <= count, (seed, case.what, wrong)

"""Hundreds of spoiled files: the right join or one sentence, never anything else.

Each example has a number that shows in its scores, so that after a join it can be told
whether a row belongs to its id.
"""

import csv
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


def scores_of(side, kind):
    """`[N, C]` with the number of the example in them."""
    scores = np.full((N, C), 0.01 * NUMBERS[:, None], np.float32)
    scores[NUMBERS, CLASSES[side]] += 4
    if kind == "probabilities":
        scores = np.exp(scores * (1 + 0.05 * NUMBERS[:, None]))
        scores /= scores.sum(axis=1, keepdims=True)
    return scores.astype(np.float32)


def table_of(side, kind, ids, names):
    """The columns that will be written; rows and columns can still be spoiled."""
    called = list(names or map(str, range(C)))
    labels = [called[c] if names else int(c) for c in LABELS]
    table = {"id": list(ids), "label": labels}
    if kind == "classes":
        return table | {"prediction": [called[c] for c in CLASSES[side]]}
    prefix = {"logits": "logit_", "probabilities": "prob_"}[kind]
    columns = scores_of(side, kind).T.tolist()
    return table | {f"{prefix}{c}": of for c, of in zip(called, columns)}


def scores_in(table):
    return [name for name in table if name.startswith(("logit_", "prob_"))]


def pick(table, rows):
    table |= {name: [values[i] for i in rows] for name, values in table.items()}


def spoiled(table, heads, change, names, rng):
    """Changes a table, or names of its columns in `heads`; says what must come of it.

    "right", the right join; "error"; "either"; or "spoiled", where nothing can be said.
    "missing", "twice" and "reordered" depend on how the file is written and joined.
    """
    ids, labels, scores = table["id"], table["label"], scores_in(table)
    row, column = int(rng.integers(N)), int(rng.integers(C))
    match change:
        case "columns_reordered" | "column_dropped" | "nan_score" if not scores:
            return "right"
        case "permuted":
            pick(table, rng.permutation(N))
            return "right"
        case "rows_dropped":
            pick(table, np.sort(rng.permutation(N)[: rng.integers(1, N)]))
            return "missing"
        case "no_rows":
            pick(table, [])
            return "error"
        case "row_twice":
            pick(table, [*range(N), row])
            return "error"
        case "id_changed":
            ids[row] = 10**9 if isinstance(ids[0], int) else "another"
            return "missing"
        case "id_empty":
            ids[row] = None
            return "error"
        case "ids_are_text":
            table["id"] = [str(i) for i in ids]
            return "right"
        case "ids_are_fractions":
            table["id"] = [n + 0.5 for n in range(N)]
            return "error"
        case "columns_reordered":
            for name in np.roll(scores, rng.integers(1, C)).tolist():
                table[name] = table.pop(name)
            return "reordered"
        case "column_dropped":
            table.pop(scores[column])
            return "spoiled" if names else "error"
        case "column_twice":
            table["again"], heads["again"] = ids, "id"
            return "twice"
        case "head_renamed":
            others = ["", "other", "id", "Label", "id\n", "x" * 999]
            which = str(rng.choice(["id", "label", "prediction"]))
            heads[which] = str(rng.choice(others))
            return "either"
        case "nan_score":
            table[scores[column]][row] = np.nan
            return "error"
        case "negative_or_large":
            if not scores or scores[0].startswith("logit_"):
                return "right"
            factor = rng.choice([-3, 100])
            for name in scores:
                table[name][row] *= factor
            return "error"
        case "label_wrong":
            others = {*NAMES, "whale"} if names else {-1, 7, 2**40}
            labels[row] = rng.choice(sorted(others - {labels[row]})).item()
            return "error"
        case "label_empty":
            labels[row] = None
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
    return np.array(values) if len(values) else np.zeros(0, np.int64)


def write(table, heads, path, style):
    """Writes a table in one of `FORMATS`."""
    scores = scores_in(table)
    if scores and style in ("npz", "lists.parquet"):
        kind = "logits" if scores[0].startswith("logit_") else "probabilities"
        names, numbers = [n.partition("_")[2] for n in scores], [*map(str, range(C))]
        values = np.array([table[name] for name in scores], np.float32).T
        table = {name: of for name, of in table.items() if name not in scores}
        if style == "npz":
            table |= {kind: values}
            if names != numbers[: len(names)]:
                table["class_names"] = names
        else:
            table[kind] = list(values[:, np.argsort(names)])
    columns = [(heads.get(name, name), of) for name, of in table.items()]
    if style == "npz":
        with open(path, "wb") as out:
            np.savez(out, **{name.replace("\n", ""): array(of) for name, of in columns})
    elif style.endswith("parquet"):
        arrays = [pa.array(values) for _, values in columns]
        written = pa.Table.from_arrays(arrays, [name for name, _ in columns])
        pq.write_table(written, path, row_group_size=7, write_page_checksum=True)
    else:
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
        self.changed, change = int(rng.integers(2)), changes[seed % len(changes)]
        self.paths, self.what = [], [change, self.names]
        for number, side in enumerate(("old", "new")):
            kind = str(rng.choice(["logits", "probabilities", "classes"]))
            style = str(rng.choice(FORMATS if self.names is None else NAMED_FORMATS))
            table, heads = table_of(side, kind, self.ids, self.names), {}
            if rng.integers(2):
                spoiled(table, heads, "permuted", self.names, rng)
            if number == self.changed:
                found = spoiled(table, heads, change, self.names, rng)
                wrong = {
                    "twice": style != "npz",
                    "reordered": style == "npz" and not self.names,
                    "missing": self.on_missing == "error",
                }
                if found in wrong:
                    found = "error" if wrong[found] else "right"
                self.expected = found
            self.what += kind, style
            self.paths.append(folder / f"{side}-{seed}.{style}")
            write(table, heads, self.paths[-1], style)

    def join(self):
        sides = [read_side(path) for path in self.paths]
        return join(*sides, on_missing=self.on_missing)


def parts(count):
    """Numbers of a few parts of many cases, of which the last half is slow."""
    slow = (pytest.param(i, marks=pytest.mark.slow) for i in range(count // 2, count))
    return pytest.mark.parametrize("part", [*range(count // 2), *slow])


@parts(8)
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


@parts(4)
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

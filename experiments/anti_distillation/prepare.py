"""Turns the original files of three public tables into clicks in time order.

    python experiments/anti_distillation/prepare.py diabetes130 RAW OUT.npz

RAW is what the UCI Machine Learning Repository offers:

    adult        the folder with adult.data and adult.test, one after the other
    diabetes130  the .zip, or diabetic_data.csv from it; sorted by encounter_id
    kddcup99     kddcup.data or its 10 % sample, perhaps .gz; as it is

OUT has the arrays of `churn_jax.data.clicks`. Vocabularies, means and standard
deviations come from the first tenth of the stream, since a stream cannot look ahead. A
word that is not among them is row 0 of its column's table; columns of many words are
hashed. No standard deviation is below 0.25, or 1 for logarithms: what hardly varies at
first may later. A missing number is the mean.
"""

import argparse
import csv
import gzip
import hashlib
import io
import pathlib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from churn_compare.array_files import replace_file
from churn_jax.data.clicks import mix, uniform

Rows = Iterator[list[str]]

_LEAST_STD = {False: 0.25, True: 1.0}  # of numbers, of logarithms of amounts
_LARGEST_VOCABULARY = 60
_MISSING = ("", "?")

_ADULT = (
    "age workclass fnlwgt education education_num marital_status occupation "
    "relationship race sex capital_gain capital_loss hours_per_week native_country "
    "income"
).split()

_KDD = (
    "duration protocol_type service flag src_bytes dst_bytes land wrong_fragment "
    "urgent hot num_failed_logins logged_in num_compromised root_shell su_attempted "
    "num_root num_file_creations num_shells num_access_files num_outbound_cmds "
    "is_host_login is_guest_login count srv_count serror_rate srv_serror_rate "
    "rerror_rate srv_rerror_rate same_srv_rate diff_srv_rate srv_diff_host_rate "
    "dst_host_count dst_host_srv_count dst_host_same_srv_rate dst_host_diff_srv_rate "
    "dst_host_same_src_port_rate dst_host_srv_diff_host_rate dst_host_serror_rate "
    "dst_host_srv_serror_rate dst_host_rerror_rate dst_host_srv_rerror_rate label"
).split()

_CODES = ("diag_1", "diag_2", "diag_3")


@dataclass(frozen=True)
class Table:
    """Meaning of the columns of a table."""

    label: str
    positive: str
    numeric: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()  # numeric, of many orders of magnitude
    hashed: dict[str, int] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    group: str | None = None  # whose rows are held out together


TABLES = {
    "adult": Table(
        label="income",
        positive=">50K",
        numeric=("age", "education_num", "hours_per_week"),
        amounts=("capital_gain", "capital_loss"),
        dropped=("fnlwgt",),  # how many people a row stands for in the census
    ),
    "diabetes130": Table(
        label="readmitted",
        positive="<30",
        numeric=tuple(
            "time_in_hospital num_lab_procedures num_procedures num_medications "
            "number_diagnoses".split()
        ),
        amounts=("number_outpatient", "number_emergency", "number_inpatient"),
        hashed={"medical_specialty": 500} | dict.fromkeys(_CODES, 5000),
        dropped=("encounter_id",),
        group="patient_nbr",
    ),
    "kddcup99": Table(
        label="label",
        positive="attack",
        numeric=tuple(c for c in _KDD if c.endswith("_rate")),
        amounts=tuple(
            "duration src_bytes dst_bytes wrong_fragment urgent hot num_failed_logins "
            "num_compromised su_attempted num_root num_file_creations num_shells "
            "num_access_files num_outbound_cmds count srv_count dst_host_count "
            "dst_host_srv_count".split()
        ),
        hashed={"service": 1000, "flag": 100},  # many come late in the stream
    ),
}


def adult(raw: pathlib.Path) -> Rows:
    yield _ADULT
    for name in ("adult.data", "adult.test"):
        with _opened(raw / name if raw.is_dir() else raw.with_name(name)) as file:
            for row in csv.reader(file, skipinitialspace=True):
                if len(row) == len(_ADULT):  # not an empty line or the remark
                    yield [*row[:-1], row[-1].removesuffix(".")]


def diabetes130(raw: pathlib.Path) -> Rows:
    with _opened(raw, member="diabetic_data.csv") as file:
        header, *rows = csv.reader(file)
    if "encounter_id" not in header:
        raise ValueError(f"{raw.name}: there is no column encounter_id")
    time = header.index("encounter_id")
    yield header
    yield from sorted(rows, key=lambda row: int(row[time]))


def kddcup99(raw: pathlib.Path) -> Rows:
    yield _KDD
    with _opened(raw) as file:
        for row in csv.reader(file):
            yield [*row[:-1], "normal" if row[-1] == "normal." else "attack"]


def _opened(path: pathlib.Path, member: str = "") -> io.TextIOBase:
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(path)
        name = next((n for n in archive.namelist() if n.endswith(member)), None)
        if name is None:
            raise ValueError(f"{path.name} holds no {member}")
        return io.TextIOWrapper(archive.open(name), "utf-8", newline="")
    opened = gzip.open if path.suffix == ".gz" else open
    return opened(path, "rt", encoding="utf-8", newline="")


def encoded(name: str, rows: Rows) -> dict[str, np.ndarray]:
    """The arrays of a table whose header comes first."""
    header, *examples = _known(rows)
    if not examples:
        raise ValueError("the raw files hold no examples")
    table, first = TABLES[name], max(len(examples) // 10, 1)
    columns = dict(zip(header, map(np.array, zip(*examples, strict=True)), strict=True))
    columns = {name: np.char.strip(column) for name, column in columns.items()}
    numbers = (*table.numeric, *table.amounts)
    apart = {table.label, table.group, *table.dropped, *numbers}
    ids, sizes = [], []
    for column in (c for c in header if c not in apart):
        words = columns[column]
        if size := table.hashed.get(column, 0):
            ids.append(_by_word(words, lambda w, c=column, n=size: _hash(c, w) % n))
        else:
            known = sorted(set(words[:first].tolist()) - set(_MISSING))
            if len(known) > _LARGEST_VOCABULARY:
                raise ValueError(f"{column} has {len(known)} words, to be hashed")
            row = {word: i for i, word in enumerate(known, start=1)}
            ids.append(_by_word(words, lambda w, row=row: row.get(w, 0)))
            size = max(len(known), 1) + 1
        sizes.append(size)
    return {
        "ids": np.stack(ids, axis=1).astype(np.int32),
        "numeric": np.stack(
            [
                _standardised(columns[c], first, c in table.amounts)
                for c in header
                if c in numbers
            ],
            axis=1,
        ),
        "labels": (columns[table.label] == table.positive).astype(np.int32),
        "sizes": np.array(sizes),
        "draw": _draw(columns.get(table.group or ""), len(examples)),
    }


def _known(rows: Rows) -> Rows:
    """The rows, of one width, with equal words as one object."""
    words: dict[str, str] = {}
    width = 0
    for number, row in enumerate(rows):
        width = width or len(row)
        if (found := len(row)) != width:
            raise ValueError(f"example {number} has {found} fields instead of {width}")
        yield [words.setdefault(word, word) for word in row]


def _by_word(words: np.ndarray, number) -> np.ndarray:
    """`number` of every word, a missing one as the empty text."""
    different, places = np.unique(words, return_inverse=True)
    plain = ("" if word in _MISSING else word for word in different.tolist())
    return np.array([number(word) for word in plain])[places]


def _hash(field: str, word: str) -> int:
    """64 bits; the name is hashed too, so that fields have other collisions."""
    digest = hashlib.blake2b(f"{field}\0{word}".encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _standardised(words: np.ndarray, first: int, amount: bool) -> np.ndarray:
    """Numbers with the mean 0 and the deviation 1 in the first tenth."""
    numbers = np.where(np.isin(words, _MISSING), "nan", words).astype(np.float64)
    numbers = np.log1p(numbers) if amount else numbers
    some = numbers[:first]
    mean, std = (float(f"{of(some):.6g}") for of in (np.nanmean, np.nanstd))
    scaled = (numbers - mean) / max(std, _LEAST_STD[amount])
    return np.nan_to_num(scaled).astype(np.float32)


def _draw(groups: np.ndarray | None, count: int) -> np.ndarray:
    """By which number an example is held out: its group's, or its own."""
    alone = uniform(mix(np.arange(count)))
    if groups is None:
        return alone
    own = uniform(_by_word(groups, lambda w: np.uint64(_hash("held out", w))))
    return np.where(np.isin(groups, _MISSING), alone, own)


def main(argv: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("raw", type=pathlib.Path, help="original file or folder")
    parser.add_argument("out", type=pathlib.Path, help=".npz file to write")
    args = parser.parse_args(argv)
    read = {"adult": adult, "diabetes130": diabetes130, "kddcup99": kddcup99}
    try:
        arrays = encoded(args.table, read[args.table](args.raw))
        with replace_file(args.out) as file:
            np.savez_compressed(file, **arrays)
    except (OSError, EOFError, zipfile.BadZipFile, ValueError) as error:
        parser.error(str(error))
    print(f"{args.out}: {len(arrays['labels']):,} examples")


if __name__ == "__main__":
    main()

"""Turns the original files of three public tables into CSV files in time order.

    python experiments/anti_distillation/prepare.py diabetes130 RAW OUT.csv

RAW is what the UCI Machine Learning Repository offers:

    adult        the folder with adult.data and adult.test, one after the other
    diabetes130  the .zip, or diabetic_data.csv from it; sorted by encounter_id
    kddcup99     kddcup.data or its 10 % sample, perhaps .gz; as it is

The result fits the packaged schema of the same name (`TableSchema.load`). These schemas
were written by `--schema OUT.toml`: vocabularies, means and standard deviations come
from the first tenth of the stream, since a stream cannot look ahead. No standard
deviation is below 0.25, or 1 for logarithms: what hardly varies at first may later.
"""

import argparse
import csv
import gzip
import io
import itertools
import math
import os
import pathlib
import statistics
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

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


class RawError(ValueError):
    """The raw files are not those that were expected; one sentence."""


@dataclass(frozen=True)
class Table:
    """What the schema of a table needs to be told."""

    label: str
    positive: str
    numeric: tuple[str, ...] = ()
    amounts: tuple[str, ...] = ()  # numeric, of many orders of magnitude
    hashed: dict[str, int] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    time: str | None = None
    group: str | None = None


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
        time="encounter_id",
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
        raise RawError(f"{raw.name}: there is no column encounter_id")
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
            raise RawError(f"{path.name} holds no {member}")
        return io.TextIOWrapper(archive.open(name), "utf-8", newline="")
    opened = gzip.open if path.suffix == ".gz" else open
    return opened(path, "rt", encoding="utf-8", newline="")


def write(rows: Rows, out: pathlib.Path) -> int:
    """Writes the file whole or not at all; returns the number of examples."""
    part = out.with_name(out.name + ".part")
    try:
        count = _write(rows, part)
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)
    return count


def _write(rows: Rows, part: pathlib.Path) -> int:
    count, width = -1, None
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for row in rows:
            width = width or len(row)
            if len(row) != width:
                raise RawError(
                    f"example {count + 1} has {len(row)} fields instead of {width}"
                )
            writer.writerow(row)
            count += 1
    if count < 1:
        raise RawError("the raw files hold no examples")
    return count


def schema_of(name: str, prepared: pathlib.Path, count: int) -> str:
    """The schema as TOML, from the first tenth of a prepared file."""
    table = TABLES[name]
    with prepared.open(encoding="utf-8", newline="") as file:
        rows = list(itertools.islice(csv.DictReader(file), count // 10))
    lines = [
        f"# {name}: written by experiments/anti_distillation/prepare.py --schema;",
        f"# vocabularies and moments of the first {len(rows):,} of {count:,} rows.",
        f'label = "{table.label}"',
        f'positive = ["{table.positive}"]',
    ]
    lines += [f'time = "{table.time}"'] if table.time else []
    lines += [f'group = "{table.group}"'] if table.group else []
    numeric = (*table.numeric, *table.amounts)
    apart = {table.label, table.time, table.group, *table.dropped, *numeric}
    for column in (c for c in rows[0] if c not in apart):
        lines += ["", "[[categorical]]", f'name = "{column}"']
        if column in table.hashed:
            lines += [f"buckets = {table.hashed[column]}"]
            continue
        words = sorted({row[column] for row in rows} - set(_MISSING))
        if len(words) > _LARGEST_VOCABULARY:
            raise RawError(f"{column} has {len(words)} words, to be hashed")
        lines += _list("vocabulary", words or ["no value in the first tenth"])
    for column in (c for c in rows[0] if c in numeric):
        amount = column in table.amounts
        values = [float(row[column]) for row in rows if row[column] not in _MISSING]
        values = [math.log1p(v) for v in values] if amount else values
        lines += ["", "[[numeric]]", f'name = "{column}"']
        lines += ['transform = "log1p"'] if amount else []
        lines += [
            f"mean = {statistics.fmean(values):.6g}",
            f"std = {max(statistics.pstdev(values), _LEAST_STD[amount]):.6g}",
        ]
    return "\n".join(lines) + "\n"


def _list(key: str, words: Iterable[str]) -> list[str]:
    return [f"{key} = [", *(f'    "{word}",' for word in words), "]"]


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("raw", type=pathlib.Path, help="original file or folder")
    parser.add_argument("out", type=pathlib.Path, help="CSV file to write")
    parser.add_argument("--schema", type=pathlib.Path, help="TOML file to write too")
    args = parser.parse_args()
    read = {"adult": adult, "diabetes130": diabetes130, "kddcup99": kddcup99}
    try:
        count = write(read[args.table](args.raw), args.out)
        if args.schema:
            args.schema.write_text(schema_of(args.table, args.out, count), "utf-8")
    except (OSError, EOFError, zipfile.BadZipFile, ValueError) as error:
        parser.error(str(error))
    print(f"{args.out}: {count:,} examples")


if __name__ == "__main__":
    main()

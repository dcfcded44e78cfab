"""Texts with classes from where they are published: CSV folders and TFDS sets.

The columns of an example after its class (a title and a description, say) are joined by
a space and cut into WordPieces.
"""

import csv
import pathlib
from collections.abc import Mapping

from churn_jax.data.splits import DataError, Split
from churn_jax.data.text import TextOptions, text_split
from churn_jax.data.text_wordpiece import encode_texts

__all__ = ["is_text_folder", "read_text_folder", "read_text_records"]

_CHUNK = 1024


def is_text_folder(name: str | pathlib.Path) -> bool:
    """Whether a folder holds `train.csv` or `test.csv`."""
    folder = pathlib.Path(name)
    return any((folder / f"{split}.csv").is_file() for split in ("train", "test"))


def read_text_folder(
    folder: str | pathlib.Path, options: TextOptions
) -> dict[str, Split]:
    """The splits of a folder with `train.csv` and `test.csv`, as AG News has."""
    # A line is a class, counted from 1, and columns of text. Backslashes, which stand
    # for line breaks in AG News, become spaces.
    splits = {}
    for split in ("train", "test"):
        path = pathlib.Path(folder) / f"{split}.csv"
        texts, labels = _read_csv(path)
        splits[split] = text_split(split, encode_texts(texts, options), labels, None)
    return splits


def _read_csv(path: pathlib.Path) -> tuple[list[str], list[int]]:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    texts, labels = [], []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, strict=True)
            for row in lines:
                if len(row) < 2 or not row[0].isdecimal() or row[0] == "0":
                    raise DataError(
                        f"{path}, line {lines.line_num}: expected a class, counted "
                        f"from 1, and columns of text; got {','.join(row)[:40]!r}"
                    )
                labels.append(int(row[0]) - 1)
                texts.append(" ".join(row[1:]).replace("\\", " "))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not texts:
        raise DataError(f"{path} is empty")
    return texts, labels


def read_text_records(
    sources: Mapping[str, tuple],
    fields: tuple[str, ...],
    label: str,
    options: TextOptions,
) -> dict[str, Split]:
    """The splits of a prepared TFDS set of texts, its `fields` joined."""
    splits = {}
    for ours, (theirs, source) in sources.items():
        texts, labels = [], []
        for start in range(0, len(source), _CHUNK):
            rows = range(start, min(start + _CHUNK, len(source)))
            for record in source.__getitems__(list(rows)):
                parts = (record[field] for field in fields)
                texts.append(b" ".join(parts).decode().replace("\\", " "))
                labels.append(int(record[label]))
        ids = [f"{theirs}/{i}" for i in range(len(labels))]
        splits[ours] = text_split(ours, encode_texts(texts, options), labels, ids)
    return splits

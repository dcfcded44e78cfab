"""Numbers of a document for programs: CSV and JSON at full precision."""

import csv
import dataclasses
import io
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from churn_compare.documents.blocks import Document, Records
from churn_compare.documents.html import html_page
from churn_compare.documents.markdown import markdown


def csv_text(records: Records) -> str:
    r"""One line per row under a header line.

    Args:
        records: fields and rows.

    Returns:
        The text of a file. Names are as they are, so a spreadsheet may take one that
        starts with `=` for a formula.

    Example:
        >>> csv_text(Records(["a", "b", "c"], [{"a": 0.1, "b": math.nan}]))
        'a,b,c\n0.1,,\n'
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, records.fields, lineterminator="\n")
    writer.writeheader()
    for row in records.rows:
        writer.writerow({name: _field(value) for name, value in row.items()})
    return out.getvalue()


def _field(value: Any) -> Any:
    whole = isinstance(value, numbers.Integral)
    if isinstance(value, numbers.Real) and not whole:  # NumPy's, too
        return repr(float(value)) if math.isfinite(value) else ""
    return value


def json_text(value: Any, indent: int = 1) -> str:
    """Anything as JSON.

    Args:
        value: as `plain_values` takes it.
        indent: spaces of a level.

    Returns:
        The text of a file.
    """
    found = plain_values(value)
    return json.dumps(found, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"


def plain_values(value: Any) -> Any:
    """What JSON can say of a value.

    Args:
        value: nested dataclasses, mappings, sequences, arrays, numbers and text.

    Returns:
        Dataclasses as mappings, sequences and arrays as lists, and None for a number
        that is not finite.

    Example:
        >>> plain_values({"a": (math.nan, 1), 2: "b"})
        {'a': [None, 1], '2': 'b'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table_files(document: Document) -> dict[str, str]:
    """The files of a report whose data are `Records`, by name.

    Args:
        document: the report.

    Returns:
        Texts of `table.md`, `table.csv` and `report.html`, for `write_files`.
    """
    return {
        "table.md": markdown(document.at("summary")),
        "table.csv": csv_text(document.data),
        "report.html": html_page(document),
    }


def write_files(folder, contents: Mapping[str, str | bytes]) -> dict[str, Path]:
    """Writes files, each whole or not at all.

    Args:
        folder: where to; it is made.
        contents: name to text or bytes.

    Returns:
        Name to path.

    Raises:
        OSError: a file could not be written; an earlier one is left as it was.
    """
    from churn_compare.array_files import write_file

    return {n: write_file(Path(folder) / n, text) for n, text in contents.items()}

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
    """A header line and one line per row; names are not escaped."""
    out = io.StringIO()
    writer = csv.DictWriter(out, records.fields, lineterminator="\n")
    writer.writeheader()
    for row in records.rows:
        fields = {}
        for name, value in row.items():
            whole = isinstance(value, numbers.Integral)
            if isinstance(value, numbers.Real) and not whole:  # also of NumPy
                value = repr(float(value)) if math.isfinite(value) else ""
            fields[name] = value
        writer.writerow(fields)
    return out.getvalue()


def json_text(value: Any, indent: int = 1) -> str:
    """Text of a JSON file with a value that `plain_values` accepts."""
    found = plain_values(value)
    return json.dumps(found, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"


def plain_values(value: Any) -> Any:
    """A value with JSON types only.

    Dataclasses become mappings, sequences and arrays become lists, and numbers that are
    not finite become None.

    Example:
        >>> plain_values({"a": (math.nan, 1), 2: "b"})
        {'a': [None, 1], '2': 'b'}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "tolist"):  # NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def table_files(document: Document) -> dict[str, str]:
    """Names and texts of the files of a report whose data are `Records`."""
    return {
        "table.md": markdown(document.at("summary")),
        "table.csv": csv_text(document.data),
        "report.html": html_page(document),
    }


def write_files(folder, contents: Mapping[str, str | bytes]) -> dict[str, Path]:
    """Writes files, each whole or not at all; returns their paths by name."""
    from churn_compare.array_files import write_file

    return {n: write_file(Path(folder) / n, text) for n, text in contents.items()}

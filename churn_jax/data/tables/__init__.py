"""Tables as streams: rows of files in time order become windows of examples.

`TableSchema` says what the columns mean, `open_table` reads CSV files, Parquet files
and TFDS sets, and `synthetic_clicks` draws a stream of any length on the fly.
Not exported from `churn_jax.data`: Arrow is loaded only where tables are used.
"""

from churn_jax.data.tables.schema import (
    Categorical,
    Numeric,
    TableSchema,
    packaged_schemas,
)
from churn_jax.data.tables.stream import TableStream, Window, open_table
from churn_jax.data.tables.synthetic import SyntheticClicks, synthetic_clicks

__all__ = [
    "Categorical",
    "Numeric",
    "SyntheticClicks",
    "TableSchema",
    "TableStream",
    "Window",
    "open_table",
    "packaged_schemas",
    "synthetic_clicks",
]

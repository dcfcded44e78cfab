"""Reports as plain data, and the functions that write them.

A report is a function from results to a `Document` of blocks. `html_page`, `markdown`,
`print_document` and `csv_text` write it and escape its texts, so blocks hold plain
text. Rich, Jinja2 and Matplotlib are imported when they are used.
"""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use as _load_on_use

if TYPE_CHECKING:
    from churn_compare.documents.blocks import (
        Block,
        Card,
        Cell,
        Code,
        Column,
        Detail,
        Document,
        Facts,
        Figure,
        Fold,
        Grid,
        Records,
        Rows,
        Section,
        Strong,
        Table,
        Term,
        Terms,
        Text,
        bullets,
    )
    from churn_compare.documents.writers import (
        csv_text,
        html_fragment,
        html_page,
        json_text,
        markdown,
        plain_text,
        plain_values,
        print_document,
        table_files,
        write_files,
    )

__getattr__, __dir__, __all__ = _load_on_use(__name__)

"""Reports as plain data, and the functions that write them.

A report is a function from results to a `Document` of blocks. `html_page`, `markdown`,
`print_document` and `csv_text` write it and escape its texts, so blocks hold plain
text. Rich, Jinja2 and Matplotlib are imported when they are used.
"""

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
from churn_compare.documents.data import (
    csv_text,
    json_text,
    plain_values,
    table_files,
    write_files,
)
from churn_compare.documents.html import html_fragment, html_page
from churn_compare.documents.markdown import markdown
from churn_compare.documents.terminal import plain_text, print_document

__all__ = [
    "Block",
    "Card",
    "Cell",
    "Code",
    "Column",
    "Detail",
    "Document",
    "Facts",
    "Figure",
    "Fold",
    "Grid",
    "Records",
    "Rows",
    "Section",
    "Strong",
    "Table",
    "Term",
    "Terms",
    "Text",
    "bullets",
    "csv_text",
    "html_fragment",
    "html_page",
    "json_text",
    "markdown",
    "plain_text",
    "plain_values",
    "print_document",
    "table_files",
    "write_files",
]

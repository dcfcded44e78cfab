"""One document in every form, with names that are markup somewhere."""

import html
import math
import re

import matplotlib
import numpy as np

from churn_compare.documents import (
    Card,
    Cell,
    Code,
    Column,
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
    csv_text,
    html_page,
    markdown,
    plain_text,
    write_files,
)
from churn_compare.documents.plotting import colour, drawing, marker, picture

EVIL = "<b>&\"'\x1b[31m*_`|\u202e@x"
SEEN = "<b>&\"' [31m*_`| @x"  # without what steers a terminal


def every_block(text):
    """Each kind of block with the text in every place that it has."""
    table = Table(
        [text, Column(text, align="left"), Column(text)],
        [(text, Cell(text, below=text), Cell(text, mark=text, tone="doubt"))],
        title=text,
        caption=text,
    )
    grouped = Table(["a", Column(text, group=text)], [(text, text)])
    return [
        Text(text, "soft"),
        Text((Strong(text), f" {text}")),
        Rows([Text((Strong(text, "good"), text), "good")]),
        bullets([text]),
        table,
        Facts({text: text}),
        Code(text),
        Terms([Term(text, text)]),
        Section(text, [Grid([grouped, Card(text, [Text(text)])])], id="here"),
        Fold(text, [Figure("<svg/>", text, text)]),
    ]


def test_a_name_is_nothing_but_text_in_every_form():
    page = html_page(Document(EVIL, [EVIL], every_block(EVIL), EVIL))
    body = page[page.index("<body>") : page.index("</body>")]
    assert EVIL not in page and "<b>" not in page and "\x1b" not in page
    tags = set(re.findall(r"<(\w+)", body))
    assert tags <= {
        *("body", "header", "h1", "h2", "h3", "p", "pre", "ul", "li", "strong", "div"),
        *("table", "thead", "tbody", "tr", "th", "td", "small", "span", "dl", "dt"),
        *("dd", "br", "section", "details", "summary", "figure", "svg", "figcaption"),
    }
    assert html.unescape(body).count(SEEN) >= 31
    for width in (60, 200):
        said = plain_text(Document(EVIL, blocks=every_block(EVIL)), width)
        assert not {"\x1b", "\u202e"} & set(said)
        assert said.count("<b>&") >= 15
    text = markdown(Document("a", blocks=every_block("a|b<i>*x* @you")))
    inline = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "@you" not in inline and "<i>" not in inline and "a|b" not in inline
    fenced = markdown(Document("a", blocks=[Code("``` `````\n# no")]))
    assert fenced.count("\n``````\n") == 2


def test_a_document_in_markdown():
    document = Document(
        "Title",
        ["what it is about", ""],
        [
            Text("One."),
            Section(
                "Numbers",
                [
                    Table(
                        ["Row", Column("x", group="Q"), Column("", align="center")],
                        [("a", Cell("1", below="0 to 2"), "*")],
                        caption="What it is.",
                    ),
                    Rows([Text("first"), Text("second")], ordered=True),
                    Figure("<svg/>", "not here"),
                ],
            ),
            Fold("More", [bullets([(Strong("b"), ": c")])]),
            Section("Nothing", [Figure(), Text("")]),
        ],
    )
    assert markdown(document, level=2) == (
        "## Title\n\nwhat it is about\n\nOne.\n\n### Numbers\n\n"
        "| Row | Q, x |  |\n|:--|--:|:-:|\n| a | 1 (0 to 2) | \\* |\n\n"
        "What it is.\n\n1. first\n2. second\n\n"
        "<details><summary>More</summary>\n\n* **b**: c\n\n</details>\n"
    )


def test_a_level_of_detail_decides_what_a_writer_shows():
    blocks = [Text("verdict")]
    blocks += [Section(d[0], [Text(d)], detail=d) for d in ("summary", "full")]
    document = Document("t → u", ["a", "", "b"], [*blocks, Fold("G", [Text("folded")])])
    body = html_page(document).partition("<body>")[2]
    assert all(word in body for word in ("verdict", "summary", "full", "folded"))
    brief = markdown(document.at("summary"))
    assert brief == "# t → u\n\na; b\n\nverdict\n\n## s\n\nsummary\n"
    assert plain_text(document.as_lines()) == "t -> u\na; b\nverdict\n"
    said = plain_text(document.as_lines("full"))
    assert said == "t -> u\na; b\nverdict\n\ns\nsummary\n\nf\nfull\nG\nfolded\n"


def test_a_narrow_terminal_has_fewer_columns_and_no_broken_number():
    for kind, of in (("plain", {"from_width": 80}), ("compare", {"detail": "full"})):
        columns = ["a", Column("much more", **of)]
        table = Table(columns, [("1" * 40, "2" * 36)], kind=kind)
        wide, narrow = (plain_text(Document("", blocks=[table]), n) for n in (80, 79))
        assert "much more" in wide and "much more" not in narrow and "1" in narrow
    table = Table(["", "Value"], [("a long name " * 9, "123,456.789")], kind="compare")
    said = plain_text(Document("", blocks=[table]), 40)
    assert "123,456.789" in said and "│" not in said
    assert max(map(len, said.splitlines())) <= 40
    many = Table(["", *"abcdefghij"], [("n", *["12.5 worse"] * 10)], kind="compare")
    assert plain_text(Document("", blocks=[many])).count("worse") == 10


def test_an_aligned_table_is_markdown_as_it_is():
    table = Table(["axis", "bytes"], [("a_b", "1"), ("c", "1,000")], kind="aligned")
    assert plain_text(Document("", blocks=[table]), 10).splitlines() == [
        "| axis | bytes |",
        "| ---- | ----: |",
        "| a_b  |     1 |",
        "| c    | 1,000 |",
    ]


def test_columns_of_a_group_share_a_heading_and_numbers_keep_their_sign():
    heads = ["Row", *(Column(who, group="NFR") for who in ("paper", "measured"))]
    blocks = [Table(heads, [("a", "1", "2")]), Text("4.2 % of\nall")]
    page = html_page(Document("t", blocks=blocks))
    assert re.findall(r"<th scope=\"(col[^>]*>[^<]*)", page) == [
        'col" rowspan="2">Row',
        'colgroup" colspan="2">NFR',
        'col">paper',
        'col">measured',
    ]
    assert "<p>4.2\u00a0% of<br>all</p>" in page
    assert "default-src 'none'" in page  # nothing can be loaded


def test_records_are_csv_at_full_precision_and_files_are_written_whole(tmp_path):
    rows = [{"a": "x,y", "b": 0.1, "c": np.float32(0.5)}, {"a": 1, "b": math.inf}]
    assert csv_text(Records("abc", rows)) == 'a,b,c\n"x,y",0.1,0.5\n1,,\n'
    paths = write_files(tmp_path / "new", {"a.txt": "é", "b.bin": b"\x00"})
    assert paths["a.txt"].read_bytes() == "é".encode()
    assert paths["b.bin"].read_bytes() == b"\x00"


def test_a_picture_is_svg_and_png_whatever_the_users_matplotlibrc():
    with matplotlib.rc_context({"text.usetex": True}), drawing(2, 2) as (figure, done):
        figure.add_subplot().plot([0, 1])
        found = picture(figure, done, name="n", title="a < b", caption="c")
    assert found.svg.startswith("<svg") and 'aria-label="a &lt; b"' in found.svg
    assert found.png.startswith(b"\x89PNG") and found.name == "n"
    assert len({(colour(i), marker(i)) for i in range(30)}) == 30

"""Every number of the experiments' pages is in a CSV file, or is marked unchecked."""

import pytest

from tests.experiment_numbers import PAGES, ROOT, check


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_numbers_of_a_page_are_those_of_its_csv_files(page):
    assert check(page).wrong == []


RESULTS = """\
label,accuracy,accuracy_std,churn,churn_stderr,delta_churn,delta_churn_stderr,\
delta_churn_p_holm,gain,gain_p
Baseline,0.9655,0.0027,0.0326,0.0024,,,,,
Pair,0.97079,0.0023,0.02514,0.0015,-0.00746,0.0007,0.0002,1.2345,0.04
"""
PAGE = """\
# A page

| Question | Command |
|---|---|
| Why 1.5? | `study --set alpha=0.25` |

<!-- unchecked: an example -->

## Results

<!-- table: results/a.csv; Speed-up = gain -->

| Method | Accuracy % | Churn % | Δ churn | p | Speed-up | Paper: churn % |
|:--|--:|--:|--:|--:|--:|--:|
| Baseline | 96.55 ± 0.27 | 3.26 ± 0.24 | – | – | – | 5.72 |
| **Pair** | 97.08 ± 0.23 | **2.51** ± 0.15 | −0.75 ± 0.07 | < 0.001 | 1.2× | 4.29 |

Churn falls by 0.75 ± 0.07 points to 2.51 % (Sec. 4.2), with rate `0.03` in Python 3.11.
In the paper it falls from 5.72 to 4.29 %; here the accuracy is 97.1 %.

### Older

<!-- unchecked: table.csv not kept -->

| Method | Churn % |
|:--|--:|
| Baseline | 3.4 |

It was 3.4 %.
"""


def page_of(folder, text):
    page = folder / "reproducibility" / "README.md"
    (page.parent / "results").mkdir(parents=True)
    (page.parent / "results" / "a.csv").write_text(RESULTS)
    page.write_text(text)
    return page


def test_a_true_page_passes_and_what_it_leaves_out_is_counted(tmp_path):
    found = check(page_of(tmp_path, PAGE))
    assert found.wrong == []
    assert found.unchecked == {"an example": 1, "table.csv not kept": 2}
    assert found.checked == 15


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("97.08 ± 0.23", "97.18 ± 0.23", "'97.18 ± 0.23' is not in"),
        ("97.08 ± 0.23", "97.08 ± 0.24", "'97.08 ± 0.24' is not in"),
        ("−0.75 ± 0.07 |", "0.75 ± 0.07 |", "'0.75 ± 0.07' is not in"),
        ("96.55 ± 0.27", "0.97 ± 0.00", "'97.08 ± 0.23' is not in"),  # two scales
        ("< 0.001", "0.001", "'0.001' is not in"),
        ("1.2×", "1.3×", "'1.3×' is not in"),
        ("**Pair**", "**Twins**", "no row 'Twins'"),
        ("Churn % |", "Error % |", "heading 'Error %': name its column"),
        ("; Speed-up = gain", "", "heading 'Speed-up': name its column"),
        ("results/a.csv", "results/b.csv", "no file results/b.csv"),
        ("by 0.75 ± 0.07", "by 0.76 ± 0.07", "0.76 ± 0.07 is in no csv"),
        ("by 0.75 ± 0.07", "by +0.75 ± 0.07", "+0.75 ± 0.07 is in no csv"),
        ("to 2.51 %", "to 2.52 %", "2.52 is in no csv"),
        ("In the paper it", "It", "5.72 is in no csv"),
        ("to 4.29 %", "to 4.39 %", "4.39 is in no csv"),
        ("| 4.29 |", "| 4.39 |", "4.39 is not a number of the paper's"),
        ("; here the accuracy is 97.1 %", ". Rate 0.03", "0.03 is in no csv"),
        (" table: results/a.csv;", " table of results/a.csv;", "no file of"),
        ("\n<!-- table: results/a.csv; Speed-up = gain -->\n", "<!-- unchecked: -->",
         "a table of numbers without a mark"),
        ("<!-- unchecked: an example -->", "", "1.5 stands in a section without"),
        ("<!-- unchecked: an example -->", "<!-- unchecked: -->", "unchecked: why?"),
        ("<!-- unchecked: table.csv not kept -->", "", "a table of numbers without"),
        ("<!-- unchecked: table.csv not kept -->", "<!-- table: results/a.csv -->",
         "'3.4' is not in"),
    ],
)  # fmt: skip
def test_what_is_wrong_on_a_page_is_found(right, wrong, says, tmp_path):
    assert PAGE.count(right) >= 1
    found = check(page_of(tmp_path, PAGE.replace(right, wrong, 1)))
    assert any(says in line for line in found.wrong), found.wrong


CELLS = """\
# A page

<!-- cells: results/a.csv -->

| Method | Change |
|:--|--:|
| Pair | 97.08 ± 0.23<br>2.51 ± 0.15 |
"""


def test_the_cells_of_a_table_of_several_files_are_checked(tmp_path):
    page = page_of(tmp_path, CELLS)
    assert (check(page).wrong, check(page).checked) == ([], 2)
    page.write_text(CELLS.replace("2.51", "2.52"))
    assert "2.52 ± 0.15 is in no csv" in check(page).wrong[0]


CLAIMS = """\
# Claims

<!-- claims: churn -->

| # | Paper | Here | Table | Verdict |
|:--|:--|:--|:--|:--|
| R1 | 7.7 | 2.51, −0.75 ± 0.07 points, p < 0.001 | [a][file] | *confirmed* |
| R2 | rises by 1.25 | rose by 1.5 | `study old` | *not shown* |

[file]: results/a.csv
"""


def test_claims_are_checked_row_by_row(tmp_path):
    page = page_of(tmp_path, CLAIMS)
    found = check(page)
    assert (found.wrong, found.checked) == ([], 2)
    assert sum(found.unchecked.values()) == 1
    for right, wrong, says in (
        ("0.75", "0.74", "-0.74 ± 0.07, p < 0.001 is in no csv"),
        ("2.51", "2.53", "2.53 is in no csv"),
        ("confirmed", "seen", "'*seen*' is none of"),
        ("p < 0.001", "p < 0.0001", "-0.75 ± 0.07, p < 0.0001 is in no csv"),
        ("p < 0.001", "p = 0.001", "p = 0.001 is in no csv"),
        ("p < 0.001", "p = 0.040", "p = 0.040 is in no csv"),  # another column's
        ("p < 0.001", "p = 0.051", "confirmed, with p of 5 % or more"),
        ("confirmed", "not run", "not run, with a number"),
    ):
        page.write_text(CLAIMS.replace(right, wrong))
        assert any(says in line for line in check(page).wrong)

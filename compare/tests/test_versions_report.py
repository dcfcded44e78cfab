"""The page, the text and the record of a folder of versions."""

import json
import re

import numpy as np
import pytest

from churn_compare.documents import html_page, plain_text, print_document
from churn_compare.gates import Gate
from churn_compare.verdict import versions_sentences
from churn_compare.versions import compare_versions
from tests.html_page import Page

NAMES = ("v0", "v1", "v2", "v3", "v4<script>alert(1)<_script>")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Five versions, the third with two runs, one with an awkward name."""
    folder = tmp_path_factory.mktemp("versions")
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 80)
    hard = draw.normal(size=(80, 3))
    for v, runs in enumerate((1, 1, 2, 1)):
        noise = 0.6 * draw.normal(size=(runs, 80, 3))
        logits = hard + noise + 0.5 * v * np.eye(3)[labels]
        np.savez(folder / f"{NAMES[v]}.npz", logits=logits, ids=np.arange(80))
    np.savez(folder / f"{NAMES[4]}.npz", logits=hard[None])
    np.save(folder / "labels.npy", labels)
    (folder / "ids.csv").write_text("id\n" + "\n".join(map(str, range(80))) + "\n")
    gates = [Gate("churn", 0.3), Gate("negative_flip_rate", 0.0)]
    return compare_versions(folder, gates=gates, resamples=100, regressions=25)


@pytest.fixture(scope="module")
def page(result):
    return html_page(result.document("churn-jax compare versions"))


def test_the_page_has_every_part_and_links_to_each_update(page):
    read = Page(page)
    anchors = [*(f"update-{i}" for i in range(1, 5)), "first-to-last"]
    assert read.of("href") == [f"#{anchor}" for anchor in anchors]
    ids = read.of("id")
    assert [i for i in ids if i in anchors] == anchors and len(set(ids)) == len(ids)
    assert "alert(1)" in page and page.count("<script>") == 1  # the one that sorts
    assert not re.search(r'(src|href)="(?!#)', page.replace("xmlns:xlink", ""))
    for words in (
        "FAILED: ",
        "Accuracy goes from",
        "Every version against every other",
        "Relative NFR",
        "Largest regressions, ",
        "What was run",
        "churn-jax compare versions",
    ):
        assert words in page
    assert "<svg" not in page and "color-mix" in page  # matrices are heat maps


def test_the_text_fits_and_says_the_sentences(result, capsys):
    text = str(result)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(("PASS ", "FAIL ")) for line in lines) == 8
    assert text == plain_text(result.terminal())
    print_document(result.terminal())
    printed = " ".join(capsys.readouterr().out.split())
    for sentence in versions_sentences(result):
        assert " ".join(sentence.split()) in printed
    assert "Relative NFR" in plain_text(result.terminal(full=True))
    assert re.search(r"^1\s+v0\s", text, re.M)  # names are too long for columns


def test_files_hold_what_was_found_the_same_every_time(result, page, tmp_path):
    file = result.save_html(tmp_path / "a.html", command="churn-jax compare versions")
    assert file.read_text(encoding="utf-8") == page
    record = json.loads(result.save_json(tmp_path / "a.json").read_text())
    assert record == json.loads(json.dumps(result.to_dict()))
    assert record["versions"] == list(NAMES)
    assert record["churn"][0][0] is None
    assert record["churn"][2][2] > 0  # two runs of one version
    assert record["churn"][0][1] == result.churn[0, 1]
    assert record["steps"][0]["quantities"]["churn"]["value"] == result.churn[0, 1]
    assert record["first_to_last"]["examples"] == 80
    assert record["passed"] is False


def test_sentences_say_whether_flips_accumulate_or_cancel(result):
    said = " ".join(versions_sentences(result))
    gone = 1 - result.whole["churn"].value / result.step_sum("churn")
    assert gone > 0.05
    assert f"{100 * gone:.1f} % cancel out, in examples that change more" in said
    assert said.endswith("so much changes by training again alone.")

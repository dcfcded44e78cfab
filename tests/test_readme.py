"""The README's Python blocks run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_first_block_measures_churn():
    names = {}
    exec(BLOCKS[0], names)
    assert names["matrix"].shape == (2, 2)
    assert float(names["matrix"][0, 1]) == pytest.approx(
        float(names["metrics"].churn(names["old_logits"], names["new_logits"]))
    )
    assert "losses.symmetric_kl" in BLOCKS[0]


@pytest.mark.slow
def test_the_second_block_trains_ten_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(BLOCKS[1], names)
    dataset, logits = names["dataset"], names["logits"]
    assert logits.shape == (10, len(dataset.test), dataset.num_classes)
    accuracy = (logits.argmax(-1) == dataset.test.labels).mean()
    assert accuracy > 0.85
    assert list(tmp_path.iterdir()) == []  # nothing is written without a folder


def test_no_other_block_goes_unread():
    assert len(BLOCKS) == 2

"""Inputs kept for the report: which, how large, and that a browser can show them."""

import io

import numpy as np
import pytest
from matplotlib.image import imread

from churn_jax import metrics
from churn_jax.data import StreamedSplit
from churn_jax.reports import artefacts
from churn_jax.reports.artefacts import load_examples, png_bytes, save_examples
from tests.reports.fake_study import logits_of


def pixels(png):
    return imread(io.BytesIO(png), format="png")


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_survives_as_png(channels):
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels), np.uint8)
    shown = np.round(255 * pixels(png_bytes(image))).astype(np.uint8)
    np.testing.assert_array_equal(shown.reshape(5, 7, -1)[..., :channels], image)


def test_a_small_split_is_kept_whole_and_found_by_id(tmp_path):
    images = np.arange(4 * 6 * 6, dtype=np.uint8).reshape(4, 6, 6, 1)
    ids = np.array(["a/0", "a/1", "a/2", "a/7"])
    assert save_examples(tmp_path, ids, images) == tmp_path / "examples.npz"
    kept = load_examples(tmp_path)
    np.testing.assert_array_equal(kept["a/7"], images[3])
    assert "a/3" not in kept


def test_of_a_large_split_the_most_ambiguous_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(artefacts, "SMALL", 0)
    monkeypatch.setattr(artefacts, "MOST", 3)
    classes = np.zeros((4, 20), int)
    classes[0, [3, 8, 11, 17]] = 1  # three of six pairs differ
    classes[1, [3, 8]] = 1  # four of six
    classes[1, 11] = 2  # five of six
    images = (
        np.zeros((20, 4, 4), np.uint8) + np.arange(20, dtype=np.uint8)[:, None, None]
    )
    votes = metrics.ambiguity(logits_of(classes, 3))
    save_examples(tmp_path, np.arange(20), images, lambda: votes)
    kept = load_examples(tmp_path)
    assert [*kept] == [3, 8, 11] and kept[11][0, 0, 0] == 11
    assert save_examples(tmp_path / "none", np.arange(20), images) is None
    assert not (tmp_path / "none").exists()


def test_a_split_that_reads_when_asked_is_asked_for_the_chosen_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(artefacts, "SMALL", 0)
    monkeypatch.setattr(artefacts, "MOST", 2)
    asked = []

    class Images:
        shape, dtype = (4, 4, 3), np.dtype(np.uint8)

        def image(self, row, key):
            asked.append(row)
            return np.full(self.shape, 10 * row, np.uint8)

    rows = np.arange(6)
    stream = StreamedSplit("stream", np.zeros(6, np.int32), rows, rows, Images())
    classes = np.zeros((3, 6), int)
    classes[0, [2, 5]] = 1
    votes = metrics.ambiguity(logits_of(classes, 2))
    save_examples(tmp_path, np.arange(6), stream, lambda: votes)
    kept = load_examples(tmp_path)
    assert [*kept] == [2, 5] and kept[5].max() == 50
    assert asked == [2, 5]


def test_tables_have_no_images(tmp_path):
    assert save_examples(tmp_path, np.arange(5), np.zeros((5, 14), np.float32)) is None
    assert load_examples(tmp_path) == {}
    with pytest.raises(ValueError, match="one length"):
        save_examples(tmp_path, np.arange(4), np.zeros((5, 8, 8)))


@pytest.mark.parametrize("side", [64, 65, 224])
def test_large_images_are_shrunk_by_averaging(tmp_path, side):
    images = np.zeros((2, side, side, 3), np.uint8)
    images[1, : side // 2] = 200
    save_examples(tmp_path, np.arange(2), images)
    black, half = load_examples(tmp_path).values()
    assert 32 <= half.shape[0] <= 64 and half.shape[0] == half.shape[1]
    assert black.max() == 0 and half[0].min() == 200 and half[-1].max() == 0


def test_float_images_use_the_whole_range(tmp_path):
    images = np.linspace(-1, 3, 2 * 4 * 4).reshape(2, 4, 4, 1).astype(np.float32)
    save_examples(tmp_path, np.arange(2), images)
    kept = np.array([*load_examples(tmp_path).values()])
    assert kept.dtype == np.uint8 and kept.min() == 0 and kept.max() == 255


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04cut", b"text"])
def test_a_damaged_file_is_no_file(tmp_path, content):
    (tmp_path / "examples.npz").write_bytes(content)
    assert load_examples(tmp_path) == {}

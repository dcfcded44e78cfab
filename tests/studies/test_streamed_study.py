"""A study of JPEGs of various sizes, from the command line to the report."""

import numpy as np
import pytest

from churn_compare.store import load_predictions
from churn_jax import cli
from tests.data.jpegs import CLASSES, prepare_jpegs

PRESET = "experiments/reproducibility/presets.py:cifar10"
OPTIONS = (
    "--model mlp --set model.features=8 --replicas 2 --epochs 1 --batch-size 16 "
    "--validation 8 --train-size 32 --set data.image_size=12 --set data.threads=2 "
    "--set train.augmentation.flip=false --only baseline"
).split()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return prepare_jpegs(tmp_path_factory.mktemp("tfds"), "imagenet", "corrupt")


def study(data_dir, kind, out, *more):
    name = f"churn_jpegs/{kind}"
    data = ["--data", name, "--data-dir", str(data_dir), "--out", str(out)]
    return cli.main(["study", PRESET, *data, *OPTIONS, *more])


@pytest.mark.slow
def test_a_streamed_set_is_studied_and_reported(data_dir, tmp_path):
    assert study(data_dir, "imagenet", tmp_path) == 0
    folder = tmp_path / "methods" / "baseline"
    test = load_predictions(folder / "predictions.npz")
    assert test.logits.shape == (2, 11, CLASSES)
    assert load_predictions(folder / "predictions-validation.npz").logits.shape[1] == 8
    # The same in shards, from the checkpoint.
    (folder / "predictions.npz").unlink()
    form = ["--predictions", "shards"]
    assert study(data_dir, "imagenet", tmp_path, *form) == 0
    again = load_predictions(folder / "predictions", whole=True)
    np.testing.assert_array_equal(again.ids, test.ids)
    np.testing.assert_allclose(again.logits, test.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_broken_image_is_one_sentence_and_exit_code_2(data_dir, tmp_path, capsys):
    assert study(data_dir, "corrupt", tmp_path) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "train" in said[0]

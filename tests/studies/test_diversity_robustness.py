"""Corrupted sets of `churn-jax diversity`: which parts there are, without networks."""

from types import SimpleNamespace

import numpy as np

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig
from churn_jax.data import Split
from churn_jax.methods import ERM
from churn_jax.studies.diversity.robustness import corruption_parts
from churn_jax.studies.diversity.study import AnalysedStudy, DiversityOptions

IMAGES = np.arange(9 * 64, dtype=np.uint8).reshape(9, 8, 8, 1)
TEST = Split(IMAGES, np.arange(9, dtype=np.int32), np.arange(9))
ROWS = tuple(MethodSpec(name, name, ERM()) for name in ("a", "stopped"))


def parts_of(manual_dir=None, examples=3):
    """The parts of two rows, all of whose replicas have stopped in the second."""
    options = DiversityOptions(examples=examples, types=("fog",), severities=(2,))
    opened = SimpleNamespace(
        study=SimpleNamespace(
            config=SimpleNamespace(data=DataConfig(manual_dir=manual_dir))
        ),
        options=options,
        dataset=SimpleNamespace(test=TEST),
        rows=ROWS,
        runs=lambda spec: [0, 1] if spec.name == "a" else [],
        stamp=lambda spec, extra=None: f"{spec.name} {extra}",
    )
    opened.test = lambda: AnalysedStudy.test(opened)
    return corruption_parts(opened)


def published(folder):
    """A folder like CIFAR-10-C, with the digits' name; severity s is s everywhere."""
    (folder / "digits-C").mkdir()
    levels = np.repeat(np.arange(1, 6, dtype=np.uint8), 9)
    images = np.broadcast_to(levels[:, None, None, None], (45, 8, 8, 1))
    np.save(folder / "digits-C" / "fog.npy", images)
    np.save(folder / "digits-C" / "labels.npy", np.tile(np.arange(9), 5))
    return folder


def test_a_row_whose_runs_have_all_stopped_has_no_part():
    assert [part.key for part in parts_of()] == ["a/fog/2"]


def test_published_images_are_spaced_evenly_and_are_another_part(tmp_path):
    (own,), (theirs,) = parts_of(), parts_of(str(published(tmp_path)))
    assert own.key == theirs.key and own.stamp != theirs.stamp
    for part in (own, theirs):
        images, labels = part.compute.args[2]("fog", 2)
        np.testing.assert_array_equal(labels, [0, 4, 8])
        assert images.shape == (3, 8, 8, 1)
    assert (images == 2).all()

"""A row that deploys a mean leaves its members' predictions, of the same pass."""

import types

import numpy as np

from churn_jax.data import Dataset, Split
from churn_jax.methods import ERM
from churn_jax.studies import predictions as module
from churn_jax.studies.predictions import predict_split_of


class Told:
    """A trained row that says what it is asked: logits count up with the image."""

    def __init__(self, method):
        self.run = types.SimpleNamespace(
            method=method, config=types.SimpleNamespace(replicas=2)
        )
        self.asked = []

    def predict(self, images, weights, *, every_member=False):
        self.asked.append((len(images), weights, every_member))
        lead = (2, self.run.method.members) if every_member else (2,)
        own = np.arange(np.prod(lead), dtype=np.float32).reshape(*lead, 1, 1)
        return own * images.reshape(-1, 1) * np.array([1.0, 0.0, -1.0], np.float32)


def dataset(examples=10):
    images = np.linspace(-1, 1, examples, dtype=np.float32).reshape(-1, 1, 1, 1)
    labels = np.arange(examples) % 3
    split = Split(images, labels, np.arange(examples))
    return Dataset("x", split, split, split, num_classes=3, fingerprint="")


def test_members_and_deployed_logits_come_from_one_pass():
    told = Told(ERM(members=2, deploy="mean_logits"))
    logits, members, note = predict_split_of(told, dataset(), "test", "ema")
    assert told.asked == [(10, "ema", True)]
    np.testing.assert_allclose(logits, members.logits.mean(axis=1), rtol=1e-6)
    assert note == ""


def test_of_too_many_members_those_of_some_examples_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 4 * 2 * 2 * 3)
    told = Told(ERM(members=2, deploy="mean_probs"))
    logits, members, note = predict_split_of(told, dataset(), "test")
    assert told.asked == [(10, "config", False), (4, "config", True)]
    assert members.ids.tolist() == [0, 3, 6, 9] and logits.shape == (2, 10, 3)
    said = "120 logits of members on the test split"
    assert note == f"of {said} those of 4 examples of 10 are kept"
    _, members, note = predict_split_of(told, dataset(), "validation")
    assert members is None and note.endswith("validation split are not kept")

"""A row that deploys a mean leaves its members' predictions, of the same pass."""

import types

import numpy as np

from churn_jax.data import Dataset, Split
from churn_jax.methods import ERM
from churn_jax.reports.members import DIAGNOSTICS, load_agreement
from churn_jax.studies import predictions as module
from churn_jax.studies.predictions import _keep_members, predict_split_of


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
    found = predict_split_of(told, dataset(), "test", "ema")
    assert told.asked == [(10, "ema", True)]
    every = found.members.logits
    np.testing.assert_allclose(found.logits, every.mean(axis=1), rtol=1e-6)
    assert found.note == "" and found.agreement is None


def test_too_many_members_leave_diagnostics_and_a_note(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MOST_NUMBERS", 4 * 2 * 2 * 3)
    told = Told(ERM(members=2, deploy="mean_probs"))
    found = predict_split_of(told, dataset(), "test")
    assert told.asked == [(10, "config", False), (4, "config", True)]
    assert found.members is None and found.logits.shape == (2, 10, 3)
    assert (found.agreement.examples, found.agreement.total) == (4, 10)
    assert found.note == (
        "120 logits of members on the test split are not kept; their diagnostics are "
        "of 4 of 10 examples"
    )
    _keep_members(tmp_path, "validation", found)
    assert not list(tmp_path.iterdir())
    _keep_members(tmp_path, "test", found)
    assert load_agreement(tmp_path / DIAGNOSTICS).total == 10

"""A study of ensembles and their students, with what their members predict."""

import numpy as np
from scipy.special import log_softmax, logsumexp

from churn_jax.predictions import Predictions, save_predictions
from churn_jax.reports.members import (
    MEMBERS,
    MEMBERS_VALIDATION,
    Members,
    save_members,
)
from tests.reports.fake_study import write_study

COLUMNS = ["accuracy", "nll", "calibrated_nll", "calibrated_brier", "calibrated_ece"]
COLUMNS += ["temperature", "dee", "member_kl", "member_disagreement", "churn"]
COLUMNS += ["parameters"]
ERM = {"class": "ERM", "deploy": "mean_probs"}
STUDENT = {"class": "OneToOneDistillation", "deploy": "mean_probs"}
R, N, C = 3, 120, 4


def mean_probs(logits):
    """`[R, M, N, C]` to `[R, N, C]`."""
    return logsumexp(log_softmax(logits, axis=-1), axis=1) - np.log(logits.shape[1])


def network_logits(rng, labels, members, own=1.0, common=0.6, sharp=1.0):
    """`[R, M, N, C]` of networks of one quality: the same trouble, and each its own."""
    shape = (R, members, len(labels), C)
    hard = common * rng.normal(size=(len(labels), C))
    noise = hard + own * rng.normal(size=shape)
    return (sharp * (1.5 * np.eye(C)[labels] + noise)).astype(np.float32)


def ensembles(seed=0, examples=N):
    """Row to `(test, validation)` logits `[R, M, N, C]`, and both splits' labels.

    Drawn so that an ensemble is better than a network; `alike` has members that are
    one network, three times as sure as it should be; `deaf` knows nothing.
    """
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, C, n) for n in (examples, examples // 2)]

    def both(members, **options):
        return [network_logits(rng, y, members, **options) for y in labels]

    alike = [np.repeat(z, 2, axis=1) for z in both(1, sharp=3.0)]
    deaf = [np.zeros((R, 1, len(y), C), np.float32) for y in labels]
    rows = {
        "single": both(1),
        "teachers": both(4),
        "student": both(2, own=0.9),
        "alike": alike,
        "deaf": deaf,
        "oracle": both(2, own=0.3),
    }
    return rows, labels


def write_ensembles(folder, columns=COLUMNS, seed=0, examples=N, **facts):
    """The folder that such a study leaves."""
    rows, (labels, held_out) = ensembles(seed, examples)
    entries = {
        name: {
            "teacher": None if name in ("single", "teachers") else "teachers",
            "method": {
                **(ERM if name in ("single", "teachers") else STUDENT),
                "members": test.shape[1],
            },
            "parameters": 460_000 * (test.shape[1] if name == "teachers" else 1) + i,
        }
        for i, (name, (test, _)) in enumerate(rows.items())
    }
    deployed = {name: mean_probs(test) for name, (test, _) in rows.items()}
    options = {"config": {"columns": columns}, "baseline": "single"} | facts
    write_study(folder, deployed, labels, entries=entries, **options)
    for name, (test, validation) in rows.items():
        own = folder / "methods" / name
        save_predictions(
            own / "predictions-validation.npz",
            Predictions(np.arange(len(held_out)), held_out, mean_probs(validation)),
        )
        if test.shape[1] > 1:
            ids = np.arange(len(labels))
            save_members(own / MEMBERS, Members(ids, labels, test))
            ids = np.arange(len(held_out))
            save_members(own / MEMBERS_VALIDATION, Members(ids, held_out, validation))
    return folder

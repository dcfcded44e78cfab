"""Token ids in the engine: what it refuses; `tests/studies` trains on them."""

import numpy as np
import pytest

from churn_jax.configuration.training import Seeds, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.data.splits import Dataset, Split
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.models import MLP, create
from churn_jax.training.examples import check_run
from churn_jax.training.run import Run
from tests.training.tiny_texts import Bag

TOKENS = np.array([[3, 4, 0], [19, 0, 0]], np.int32)

_SPLIT = Split(TOKENS, np.arange(2), np.array(["a", "b"]))
TEXTS = Dataset("texts", _SPLIT, _SPLIT, _SPLIT, 3, "")


def run(module, method=ERM(), **options):
    return Run("row", method, (Group(from_linen(module), 1),), TrainConfig(**options))


def test_heads_of_attention_are_no_members():
    for name in ("text_encoder", "swin_tiny"):
        assert from_linen(create(name, num_classes=3)).heads == 1


def test_texts_that_are_neither_moved_nor_unknown_are_let_through():
    check_run(run(Bag()), TEXTS)
    off = {"augmentation": Augmentation(flip=True), "seeds": Seeds(augment="off")}
    check_run(run(Bag(), **off), TEXTS)


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (run(Bag(), augmentation=Augmentation(flip=True)), "row: token ids are not"),
        (
            run(Bag(), EnsembleDistillation(perturbation="ods")),
            "'ods' moves pixels by small steps; token ids have none",
        ),
        (
            run(MLP(num_classes=3, features=(4,))),
            "row: MLP cannot be applied to token ids .*got int32",
        ),
        (
            run(Bag(vocabulary=19)),
            "ids go up to 19, but Bag has 19 embeddings; set data.vocabulary_size=19",
        ),
    ],
)
def test_what_would_move_texts_or_not_know_them_is_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        check_run(refused, TEXTS)

import dataclasses
import json

import jax
import numpy as np
import pytest

from churn_jax.configuration.codec import differences, in_words
from churn_jax.ensembles import Group
from churn_jax.methods import ERM, Codistillation, EnsembleDistillation
from churn_jax.studies import ModelConfig
from churn_jax.training import Run, TrainConfig
from churn_jax.training.checkpoint import computation, identity_of
from churn_jax.training.teachers import as_teachers


def identity(method, teacher=None, data="0" * 64, **options):
    group = Group(ModelConfig("mlp", features=(8,)).build(10), method.members)
    config = TrainConfig(**{"replicas": 2, "epochs": 2, **options})
    return identity_of(Run("run", method, (group,), config), data, as_teachers(teacher))


def difference(theirs, ours):
    return in_words(differences(json.loads(theirs), json.loads(ours)))


@dataclasses.dataclass
class Teacher:
    """What `identity_of` asks of a teacher."""

    identity: str

    @property
    def run(self):
        return self

    name = "ensemble"


def test_only_the_fields_that_differ_are_named():
    a = identity(Codistillation(beta=0.1, alpha=0.2))
    b = identity(Codistillation(beta=0.3, alpha=0.2), epochs=3)
    text = "epochs: 2 there, 3 here; method.beta: 0.1 there, 0.3 here"
    assert difference(a, b) == text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (jax.default_prng_impl("rbg"), "jax_default_prng_impl: threefry2x32 there, rb"),
        (jax.threefry_partitionable(False), "partitionable: True there, False here"),
        (jax.enable_x64(True), "jax.jax_enable_x64: False there, True here"),
        (jax.default_matmul_precision("highest"), "precision: None there, highest"),
    ],
)
def test_settings_of_jax_that_decide_bits_are_part_of_it(setting, words):
    there = identity(ERM())
    with setting:
        assert words in difference(there, identity(ERM()))


@pytest.mark.parametrize("count", [45, 3000])
def test_long_arrays_are_cut_or_show_the_first_value_that_differs(count):
    half = np.full(count, 0.5)
    rising = np.linspace(0, 1, count)
    late = np.where(np.arange(count) == 40, 0.25, half)
    a, b, c = (identity(Codistillation(beta=x)) for x in (rising, half, late))
    text = difference(a, b)
    assert text.endswith("here") and len(text) < 140
    assert text.count(f"... {count} values]") == 2 and "[0.5, 0.5, 0.5, ..." in text
    assert difference(b, c) == "method.beta[40]: 0.5 there, 0.25 here"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epochs": 3}, "teacher.epochs: 2 there, 3 here"),
        ({"data": "1" * 64}, "teacher.data: "),
        ({"ema_decay": 0.5}, "teacher.ema_decay: 0.0 there, 0.5 here"),
    ],
)
def test_a_students_identity_holds_its_teachers_training(change, said):
    student = EnsembleDistillation()
    a = identity(student, Teacher(identity(ERM(members=2))))
    b = identity(student, Teacher(identity(ERM(members=2), **change)))
    assert a != b and difference(a, b).startswith(said)
    # A teacher that is new is one difference.
    assert difference(identity(student), a) == "teacher: None there, ensemble here"


def test_where_and_how_fast_it_runs_is_no_part_of_it():
    other = identity(ERM(), mapping="unroll", eval_batch_size=7)
    assert other == identity(ERM())
    assert "mapping" not in json.loads(other)


def test_a_computation_is_told_by_its_operations_and_its_constants():
    def scaled(by, inner=jax.nn.relu):
        return computation(jax.jit(lambda x: inner(x) * by), np.ones(3, np.float32))

    ones, other = np.ones(3, np.float32), np.array([1, 1, 2], np.float32)
    assert scaled(ones) == scaled(ones.copy()) != scaled(other)
    assert scaled(2.0) == scaled(2.0) != scaled(2.5)
    assert scaled(2.0) != scaled(2.0, jax.nn.softplus)

"""The third paper's presets: their recipes, and who learns from whom."""

import jax
import numpy as np
import pytest

from churn_jax.methods import ERM, OneToOneDistillation
from churn_jax.studies.grid import Axis, grid_points, together
from churn_jax.training.optim import make_schedule
from tests.experiments.presets import STUDIES, study

OF_PAPER = [n for n in STUDIES if n.startswith(("dm-", "headline-diversity"))]
STUDENTS = ("kd", "gaussian", "ods", "conf_ods")
every_study = pytest.mark.parametrize("name", OF_PAPER)


def training(config, row):
    return config.spec(row).config(config.train)


def numbers(config, row):
    """What a recipe's table has of a row."""
    train = training(config, row)
    rate, decay = train.optimizer.learning_rate, train.optimizer.weight_decay
    return train.batch_size, rate, decay, train.epochs


@pytest.mark.parametrize(
    ("name", "teachers", "students"),
    [
        ("dm-cifar10-be4", (512, 0.4, 4e-4, 200), (128, 0.1, 4e-4, 250)),
        ("dm-cifar10-be8", (512, 0.4, 4e-4, 200), (64, 0.05, 4e-4, 250)),
        ("dm-cifar100", (256, 0.2, 5e-4, 300), (64, 0.05, 5e-4, 300)),
        ("dm-cifar100-wrn28-2", (256, 0.2, 5e-4, 300), (64, 0.05, 5e-4, 300)),
    ],
)
def test_recipe_is_the_released_one(name, teachers, students):
    config = study(name)
    for row in ("teachers", "single"):
        assert numbers(config, row) == teachers
    for row in ("scratch", *STUDENTS):
        assert numbers(config, row) == students
    for spec in config.methods:
        train = spec.config(config.train)
        optimizer = train.optimizer
        assert (optimizer.momentum, optimizer.nesterov) == (0.9, False)
        assert (optimizer.decay, optimizer.decay_on) == ("l2", "all")
        assert optimizer.fast_rate == 0.5 and train.weights == "best"
        assert (train.augmentation.pad_crop, train.augmentation.flip) == (4, True)
    assert config.data.validation == 5000


def test_learning_rate_rises_stays_and_falls_as_the_released_one():
    config = study("dm-cifar10-be4")
    for row, (up, flat, down, end) in (
        ("teachers", (5, 100, 180, 200)),
        ("kd", (5, 125, 225, 250)),
    ):
        optimizer = training(config, row).optimizer
        schedule = make_schedule(optimizer, steps_per_epoch=10, total_steps=10 * end)
        found = [
            float(schedule(10 * epoch))
            for epoch in (0, up, flat, (flat + down) // 2, down, end - 1)
        ]
        np.testing.assert_allclose(found, [0.01, 1, 1, 0.505, 0.01, 0.01], rtol=1e-4)


@every_study
def test_rows_share_weights_and_learn_as_in_the_paper(name):
    config = study(name)
    wide = config.data.name in ("cifar100", "tiny_imagenet") or config.baseline == "kd"
    for spec in config.methods:
        method, group = spec.method, spec.groups(config.model, 10)[0]
        student = isinstance(method, OneToOneDistillation)
        shares = student or spec.name == "scratch"
        assert (group.network.heads > 1) == shares != spec.separate
        assert group.members == method.members
        if shares:  # one network, whose objective is a mean over its members
            assert group.size == 1
            assert method.over_members == "mean"
        if student:  # as many teachers as it has members
            teacher = config.spec(spec.teacher)
            taught = method.members + method.external_teachers
            assert teacher.method.members == taught and teacher.separate
            assert isinstance(teacher.method, ERM)
            assert method.deploy == teacher.method.deploy == "mean_probs"
        if student and "_tau" not in spec.name:
            assert (method.alpha, method.temperature) == (0.9, 1.0 if wide else 4.0)
        if "cifar" in name and "small" not in name and spec.name in STUDENTS[1:]:
            assert method.step_size == 1 / 255 and method.pixel_range == (0.0, 1.0)


def test_grids_differ_in_the_temperature_alone():
    for name in ("dm-table6", "dm-table7"):
        rows = [s for s in study(name).methods if s.name.startswith("kd_tau")]
        assert [row.method.temperature for row in rows] == [1.0, 2.0, 4.0, 8.0]
        same = {jax.tree.structure(row.method) for row in rows}
        assert len(same) == 1 and {row.teacher for row in rows} == {"teachers"}
        assert all(r.method.replace(temperature=4.0) == rows[2].method for r in rows)
    config = study("dm-table6")
    axes = [Axis.parse(f"{row.name}.alpha=0.1,1", config) for row in rows]
    points = [p for axis in axes for p in grid_points(config, axis).values()]
    assert [len(part) for part in together(config, points)] == [8]  # side by side

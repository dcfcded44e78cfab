"""Each cause of churn changes exactly what it names; replicas are independent."""

import dataclasses
import functools
import itertools
import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import struct

from churn_jax.configuration.training import MeshShape, OptimizerConfig, Seeds
from churn_jax.data import Augmentation
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM, Codistillation, LossOutput
from churn_jax.training import train
from churn_jax.training.partition import DATA
from churn_jax.training.state import (
    draw_sample,
    epoch_order,
    member_keys,
    member_weights,
)
from churn_jax.training.step import draw
from tests import reference_losses as reference
from tests.training import tiny

ONE = MeshShape()
LEVELS = ("fixed", "varied")
PAIR = Codistillation(beta=0.3, alpha=0.1)
member_counts = jax.jit(functools.partial(member_weights, "bootstrap"))
member_subsets = jax.jit(functools.partial(member_weights, "subset"))


@struct.dataclass
class Witness(ERM):
    """Plain training that also logs what the step sees, as sums over the batch."""

    def loss(self, apply, variables, batch, *, teacher, step, key):
        out = super().loss(apply, variables, batch, teacher=teacher, step=step, key=key)
        height, width = batch.images.shape[1:3]
        ramp = np.arange(1.0, height * width + 1, dtype=np.float32)
        position = ramp.reshape(1, height, width, 1) / (height * width)
        place = np.arange(1.0, len(batch.labels) + 1, dtype=np.float32)
        seen = {
            # Depends on the order of the examples ...
            "order": batch.sum(place * batch.labels),
            # ... not on how they were moved about, and this on both.
            "images": batch.sum((batch.images * position).sum((1, 2, 3)) * place),
        }
        return LossOutput(out.loss, {**out.terms, **seen}, out.model_state)


def varies(values) -> bool:
    """True if replicas differ; if they do, all of them do."""
    rows = {np.asarray(v).tobytes() for v in values}
    assert len(rows) in (1, len(values))
    return len(rows) > 1


@pytest.mark.parametrize("factor", ["init", "order", "augment"])
def test_a_factor_changes_exactly_what_it_names(factor):
    fixed = {"init": "fixed", "order": "fixed", "augment": "fixed"}
    run = tiny.make_run(
        ERM(), network=tiny.LINEAR, seeds=Seeds(3, **{**fixed, factor: "varied"})
    )
    session = tiny.session_of(run)
    for epoch in (0, 1):
        inputs = session.parts[0].inputs(epoch)
        seen = {
            "init": session.parts[0].state.params[0]["kernel"],
            "order": inputs.order,
            "augment": jax.random.key_data(inputs.augment_key),
        }
        varied = [name for name, value in seen.items() if varies(np.asarray(value))]
        assert varied == [factor]
    epochs = [np.asarray(session.parts[0].inputs(e).order)[0] for e in (0, 1)]
    assert not np.array_equal(*epochs)
    assert np.array_equal(np.sort(epochs[0]), np.arange(tiny.EXAMPLES))


def test_factors_do_not_share_keys():
    """Fixing one factor leaves the draws of the others as they were."""
    factors = ("init", "order", "augment", "sample")
    keys = [
        np.asarray(jax.random.key_data(Seeds(3).keys(f, np.arange(3)))) for f in factors
    ]
    assert len({k[1].tobytes() for k in keys}) == 4
    other = Seeds(3, init="fixed", augment="off")
    same = np.asarray(jax.random.key_data(other.keys("order", np.arange(3))))
    assert np.array_equal(same, keys[1])


@pytest.mark.parametrize(("order", "augment"), list(itertools.product(LEVELS, LEVELS)))
def test_the_step_sees_what_the_factors_say(order, augment):
    seeds = Seeds(3, init="fixed", order=order, augment=augment)
    seen = tiny.stepper(tiny.make_run(Witness(), network=tiny.LINEAR, seeds=seeds))
    names = ("loss", *seen.session.terms)
    sums = dict(zip(names, seen.advance(1).sums.T, strict=True))
    assert varies(sums["order"]) == (order == "varied")
    assert varies(sums["images"]) == ("varied" in (order, augment))


def test_replicas_with_everything_fixed_stay_bitwise_equal():
    seeds = Seeds(3, init="fixed", order="fixed", augment="fixed")
    run = tiny.make_run(PAIR, network=tiny.LINEAR, seeds=seeds)
    state = tiny.stepper(run).advance(6)
    first = tiny.replica(state, 0)
    assert int(first.step) == 6
    for r in (1, 2, 3):
        assert tiny.bitwise_equal(first, tiny.replica(state, r))


def ensemble(shape=ONE, mapping="loop", method=ERM(members=4), **options):
    """Two replicas of four independent networks."""
    options = {"replicas": 2, "steps_per_call": 2, "ema_decay": 0.9, **options}
    options |= {"mesh": shape, "mapping": mapping}
    return tiny.stepper(tiny.make_run(method, network=tiny.LINEAR, **options))


OTHER_MESH = (MeshShape(2, 2, 2), "unroll", MeshShape(4, 1, 2))


@pytest.mark.parametrize(
    ("shape", "mapping", "alone_on"),
    [(ONE, "loop", ONE), pytest.param(*OTHER_MESH, marks=pytest.mark.slow)],
)
def test_a_network_of_an_ensemble_is_what_it_is_alone(
    shape, mapping, alone_on, request
):
    """Network m of replica r is the replica with the seed number r + 65536 m."""
    if mapping != "loop":
        request.getfixturevalue("fully_optimized")
    state = ensemble(shape, mapping).advance(6)
    numbers = tuple(r + 65536 * m for r in range(2) for m in range(4))
    single = {"method": ERM(), "replicas": 8, "seed_numbers": numbers}
    alone = ensemble(alone_on, mapping, **single).advance(6)
    for field in ("params", "opt_state", "ema"):
        ours = jax.tree.map(
            lambda x: x.reshape(8, 1, *x.shape[2:]), getattr(state, field)
        )
        assert tiny.bitwise_equal(ours, getattr(alone, field)), field
    np.testing.assert_allclose(state.sums, alone.sums.reshape(2, 4, -1).sum(1), 1e-6)
    assert state.step.tolist() == [6, 6] and state.alive.all()


def test_networks_of_several_kinds_are_what_they_are_alone():
    """Kinds train one after another and predict together."""
    run = tiny.make_run(ERM(members=3), network=tiny.LINEAR, replicas=2)
    groups = (Group(tiny.LINEAR, 2), Group(tiny.SMALL, 1))
    mixed = dataclasses.replace(run, groups=groups)
    trained = train(mixed, tiny.dataset(), show_progress=False, **tiny.MOMENTS)
    kinds = {0: (tiny.LINEAR, (0, 1)), 1: (tiny.SMALL, (2,))}
    for group, (network, members) in kinds.items():
        numbers = tuple(r + 65536 * m for r in range(2) for m in members)
        single = tiny.make_run(
            ERM(), network=network, replicas=len(numbers), seed_numbers=numbers
        )
        alone = tiny.stepper(single).advance(int(trained.last.step[0])).params[0]
        ours = jax.tree.map(
            lambda x: x.reshape(-1, 1, *x.shape[2:]), trained.last.params[group]
        )
        assert tiny.bitwise_equal(ours, alone)
    images = tiny.dataset().test.images
    assert trained.predict(images, every_member=True).shape[:2] == (2, 3)
    # With other numbers of heads, their members' samples would share numbers.
    two = dataclasses.replace(tiny.LINEAR, heads=2)
    bagged = ERM(members=3, member_sample="bootstrap")
    groups = (Group(two, 1), Group(tiny.SMALL, 1))
    run = dataclasses.replace(mixed, method=bagged, groups=groups)
    assert run.as_replicas() == (run,)


class Stops(nn.Module):
    """A linear network whose logits are NaN from the update `at` on."""

    at: int

    @nn.compact
    def __call__(self, x, train=False):
        updates = self.variable("batch_stats", "updates", jnp.zeros, ())
        bad = jnp.where(updates.value >= self.at, jnp.nan, 0.0)
        if train and not self.is_initializing():
            updates.value += 1
        return nn.Dense(tiny.CLASSES)(x.reshape(len(x), -1)) + bad


def test_a_stopped_network_leaves_the_logged_loss_of_the_others(tmp_path):
    run = tiny.make_run(ERM(members=2), network=tiny.LINEAR, replicas=1, epochs=1)
    groups = (Group(tiny.LINEAR, 1), Group(from_linen(Stops(1)), 1))
    run = dataclasses.replace(run, groups=groups)
    train(run, tiny.dataset(), directory=tmp_path, show_progress=False)
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    (loss,) = json.loads(line)["train"]["loss"]
    assert 2.5 < loss < 5  # 1.8 of each; 9 if four updates counted as one


@pytest.mark.slow
def test_between_networks_of_an_ensemble_nothing_moves(fully_optimized):
    found = tiny.compiled(ensemble(*OTHER_MESH[:2]).run)[2]
    assert {c.axes for c in found if c.axes} == {(DATA,)}


def test_networks_of_an_ensemble_share_what_they_are_told_to_share():
    """Of a fixed factor each network has a draw, the same in all replicas."""
    fixed = Seeds(3, init="fixed", order="fixed")
    session = ensemble(seeds=fixed).session
    (part,) = session.parts
    order = np.asarray(part.inputs(0).order).reshape(2, 4, -1)
    for drawn in (order, np.asarray(part.state.params[0]["kernel"]).reshape(2, 4, -1)):
        assert np.array_equal(drawn[0], drawn[1])
        assert len({row.tobytes() for row in drawn[0]}) == 4
    shared = ensemble(seeds=dataclasses.replace(fixed, members="shared"))
    assert shared.session.parts[0].inputs(0).order.shape == (2, tiny.EXAMPLES)


def test_each_network_of_a_bag_has_its_own_sample_in_every_epoch():
    plain = OptimizerConfig(learning_rate=0.1, momentum=0.0, weight_decay=0.0)
    bagged = ERM(members=4, member_sample="subset", member_share=0.5)
    stepper = ensemble(
        method=bagged, optimizer=plain, augmentation=Augmentation(), mapping="vmap"
    )
    inputs, images = stepper.session.parts[0].inputs(1), tiny.dataset().train.images
    before = stepper.advance(tiny.STEPS_PER_EPOCH)
    after = stepper.advance(1)
    keys = member_keys(stepper.run.config.seeds, (0, 1), 4)
    for slot in (1, 2):
        rows = np.asarray(inputs.order)[4 + slot, : tiny.BATCH]
        weights = np.asarray(member_subsets(keys[1], rows, 0.5))[slot]
        pixels = ((images[rows] / 255.0 - 0.5) / 0.25).reshape(tiny.BATCH, -1)
        kernel = before.params[0]["kernel"][1, slot]
        labels = np.eye(tiny.CLASSES)[tiny.dataset().train.labels[rows]]
        apart = reference.softmax(pixels @ kernel) - labels
        gradient = pixels.T @ (weights[:, None] * apart) / tiny.BATCH
        moved, expected = after.params[0]["kernel"][1, slot], kernel - 0.1 * gradient
        np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-6)


def test_an_ensemble_stops_whole_and_the_others_do_not_notice():
    rates = OptimizerConfig(learning_rate=(0.1, 3e38), weight_decay=0.0)
    clean = OptimizerConfig(learning_rate=0.1, weight_decay=0.0)
    healthy, mixed = (ensemble(optimizer=o).advance(6) for o in (clean, rates))
    assert mixed.alive.tolist() == [True, False]
    assert mixed.step.tolist() == [6, 1] and mixed.stopped_step.tolist() == [-1, 1]
    ours, theirs = (tiny.replica(s.params, 0) for s in (mixed, healthy))
    assert tiny.bitwise_equal(ours, theirs)
    assert np.isfinite(mixed.sums).all()


def test_a_grid_point_is_what_it_is_alone():
    """alpha, beta, learning rate and weight decay differ between replicas."""
    alpha, beta = np.float32([0.0, 0.1, 0.3, 0.0]), np.float32([0.5, 0.0, 0.2, 0.5])
    rate, decay = (0.05, 0.1, 0.2, 0.1), (0.0, 1e-2, 1e-3, 1e-2)

    def after(alpha, beta, rate, decay):
        run = tiny.make_run(
            PAIR.replace(alpha=alpha, beta=beta),
            network=tiny.LINEAR,
            optimizer=OptimizerConfig(learning_rate=rate, weight_decay=decay),
            seed_numbers=(5, 5, 5, 5),
        )
        return tiny.stepper(run).advance(4)

    grid = after(alpha, beta, rate, decay)
    for r in range(4):
        alone = after(alpha[r], beta[r], rate[r], decay[r])  # all replicas are equal
        point, ours = (tiny.replica(state, r) for state in (alone, grid))
        assert tiny.largest_difference(ours.params, point.params) < 5e-6
        assert tiny.largest_difference(ours.sums, point.sums) < 2e-5
    first, second = (tiny.replica(grid, r).params for r in (0, 1))
    assert tiny.largest_difference(first, second) > 1e-2


def test_every_update_and_example_has_keys_of_its_own():
    def drawn(step):
        state = SimpleNamespace(step=step)
        inputs = SimpleNamespace(augment_key=jax.random.key(0))

        def on_device(_):
            keys = draw(state, inputs, 2)
            return keys.examples, keys.loss, keys.dropout

        mapped = jax.vmap(on_device, axis_name=DATA)
        examples, loss, dropout = mapped(np.zeros(2, np.float32))
        named = (examples[:, 0], examples[:, 1], loss[:1], dropout)
        return {jax.random.key_data(k).tobytes() for part in named for k in part}

    # Two devices with two examples each; they share the keys of the loss and of
    # dropout, whose masks are those of the global batch.
    assert len(drawn(0)) == len(drawn(1)) == 6
    assert drawn(1) == drawn(1) and not drawn(0) & drawn(1)


def test_a_bootstrap_draws_with_replacement_and_every_epoch_from_the_same_sample():
    keys = Seeds(3, sample="varied").keys("sample", np.arange(3))
    sample = draw_sample(keys, 1000, "bootstrap")
    assert sample.shape == (3, 1000) and varies(np.asarray(sample))
    for row in np.asarray(sample):
        assert 0 <= row.min() and row.max() < 1000
        # The expected share of distinct examples is 1 - 1/e = 0.632, sd 0.0098.
        assert abs(len(set(row.tolist())) / 1000 - 0.632) < 0.05
    orders = Seeds(3).keys("order", np.arange(3))
    for epoch in (0, 1):
        order = epoch_order(orders, sample, epoch)
        assert np.array_equal(np.sort(order), np.sort(sample))
        assert not np.array_equal(order, sample)


@pytest.mark.parametrize("level", LEVELS)
def test_the_sample_is_a_factor_of_its_own(level):
    seeds = Seeds(3, order="fixed", sample=level)
    run = tiny.make_run(ERM(), network=tiny.LINEAR, seeds=seeds, sample="bootstrap")
    inputs = tiny.session_of(run).parts[0].inputs(0)
    assert varies(np.sort(np.asarray(inputs.order))) == (level == "varied")


def _counts(level, base=3):
    """`[R = 3, M = 2, N]`."""
    keys = member_keys(Seeds(base, sample=level), range(3), 2)
    rows = np.arange(20_000)
    return np.asarray(jax.vmap(lambda own: member_counts(own, rows))(keys))


def test_member_counts_are_independent_poisson_draws():
    counts = _counts("varied").astype(int)
    n = counts.shape[-1]
    for row in counts.reshape(-1, n):
        # Standard deviations of the estimates: 1 and sqrt(3) over sqrt(n), sqrt(pq/n).
        assert abs(row.mean() - 1) < 4 / n**0.5
        assert abs(row.var() - 1) < 7 / n**0.5
        for k in range(7):
            p = math.exp(-1) / math.factorial(k)
            assert abs(np.mean(row == k) - p) < 4 * (p / n) ** 0.5 + 1e-4, k
        assert 6 <= row.max() <= 10
    # Neither members nor runs nor neighbouring examples know of each other.
    correlation = np.corrcoef(counts.reshape(-1, n)) - np.eye(6)
    assert np.abs(correlation).max() < 4.5 / n**0.5
    for row in counts.reshape(-1, n):
        assert abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 4.5 / n**0.5


def test_member_counts_depend_on_seed_member_and_example_alone():
    fixed, varied = _counts("fixed"), _counts("varied")
    keys = member_keys(Seeds(3, sample="varied"), range(3), 2)
    rows = np.array([70, 3, 3, 99])
    np.testing.assert_array_equal(
        member_counts(keys[1, 1:], rows), varied[1, 1:][:, rows]
    )
    assert not varies(fixed) and varies(varied)
    assert varies(fixed[0])  # the members of a run differ even then
    assert not np.array_equal(fixed, _counts("fixed", base=4))


def test_members_shares_are_random_and_independent():
    share, n = 0.3, 20_000
    keys = member_keys(Seeds(3, sample="varied"), range(2), 2)
    rows = np.arange(n)
    weights = np.stack([member_subsets(own, rows, share) for own in keys])
    assert set(np.unique(weights)) == {np.float32(0), np.float32(1 / share)}
    held = (weights > 0).reshape(4, n)
    within = 4 * (0.25 / n) ** 0.5
    np.testing.assert_allclose(held.mean(axis=1), share, atol=within)
    np.testing.assert_allclose(weights.mean(axis=-1), 1.0, atol=within / share)
    for a in range(4):  # members of one run and of two
        for b in range(a):
            common = np.mean(held[a] & held[b])
            np.testing.assert_allclose(common, share**2, atol=within)
    some = np.array([70, 3, 3, 99])
    np.testing.assert_array_equal(
        member_subsets(keys[0, :1], some, share), weights[0, :1, some].T
    )
    assert np.all(np.asarray(member_subsets(keys[0], rows, 1.0)) == 1)


def test_augmentation_is_removed_where_its_seed_is_off():
    options = {"seeds": Seeds(augment="off"), "augmentation": Augmentation(pad_crop=2)}
    run = tiny.make_run(ERM(), network=tiny.LINEAR, **options)
    assert tiny.session_of(run).program.augmentation is None

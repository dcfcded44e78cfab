"""Networks of some classes, cooled networks, last layers alone, weights between two."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.class_sets import UNKNOWN_LOGIT
from churn_jax.ensembles import (
    Group,
    Outputs,
    apply_committee,
    average_weights,
    diagonal_fisher,
    from_function,
    from_linen,
    interpolate_weights,
)
from churn_jax.ensembles.network import linear_head
from churn_jax.ensembles.wrappers import starting_from, with_classes, with_temperature
from churn_jax.models import BatchEnsemble, create
from tests.differences import difference_quotient
from tests.refusals import refusals

INPUTS, WIDTH, EXAMPLES = 4, 6, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, INPUTS)).astype(np.float32)
PARAMS = {
    "hidden": RNG.normal(size=(INPUTS, WIDTH)).astype(np.float32),
    "head": {
        "kernel": RNG.normal(size=(WIDTH, 3)).astype(np.float32),
        "bias": np.float32([0.5, -1.0, 2.0]),
    },
}


def _apply(params, x):
    features = jnp.tanh(x @ params["hidden"])
    return Outputs(linear_head({"params": params}, features), features)


NETWORK = dataclasses.replace(
    from_function(lambda key, x: PARAMS, _apply, name="small"), head=linear_head
)


def outputs_of(network, variables=None, x=X):
    apply = jax.jit(network.apply, static_argnames="train")
    return apply(variables or {"params": PARAMS}, x, train=False)[0]


class TestSomeClasses:
    WIDE = with_classes(NETWORK, (0, 2, 3), 5)

    def test_known_logits_are_the_networks_and_others_are_unknown(self):
        inner, wide = outputs_of(NETWORK), outputs_of(self.WIDE)
        np.testing.assert_array_equal(wide.logits[:, [0, 2, 3]], inner.logits)
        np.testing.assert_array_equal(wide.logits[:, [1, 4]], UNKNOWN_LOGIT)
        np.testing.assert_array_equal(wide.features, inner.features)
        probs = jax.nn.softmax(wide.logits)
        np.testing.assert_array_equal(probs[:, [1, 4]], 0.0)
        known = jax.nn.softmax(inner.logits)
        np.testing.assert_allclose(probs[:, [0, 2, 3]], known, rtol=1e-6)

    def test_no_gradient_comes_from_classes_that_it_does_not_know(self):
        def objective(params, weights):
            logits = outputs_of(self.WIDE, {"params": params}).logits
            return jnp.sum(logits * weights)

        unknown = np.float32([0, 1, 0, 0, 1])[None]
        gradient = jax.jit(jax.grad(objective))(PARAMS, unknown)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))

    def test_the_head_alone_answers_for_the_same_classes(self):
        features = outputs_of(NETWORK).features
        found = self.WIDE.head({"params": PARAMS}, features)
        np.testing.assert_allclose(found, outputs_of(self.WIDE).logits, rtol=1e-6)
        bare = dataclasses.replace(NETWORK, head=None)
        assert with_classes(bare, (0, 2, 3), 5).head is None

    def test_members_of_different_classes_are_different_networks(self):
        """A checkpoint knows a network by its name."""
        names = {with_classes(NETWORK, ids, 5).name for ids in ((0, 1, 2), (0, 1, 3))}
        assert len(names) == 2 and all("3 of 5 classes" in name for name in names)


class TestTemperature:
    def test_logits_and_head_are_divided(self):
        cooled = with_temperature(NETWORK)
        variables = {"params": PARAMS, "temperature": np.float32(2.5)}
        inner, outer = outputs_of(NETWORK), outputs_of(cooled, variables)
        np.testing.assert_allclose(outer.logits, inner.logits / 2.5, rtol=1e-6)
        np.testing.assert_array_equal(outer.features, inner.features)
        found = cooled.head(variables, inner.features)
        np.testing.assert_allclose(found, outer.logits, rtol=1e-6)

    def test_unknown_classes_stay_unknown(self):
        cooled = with_temperature(with_classes(NETWORK, (0, 2, 3), 5))
        variables = {"params": PARAMS, "temperature": np.float32(1e3)}
        logits = outputs_of(cooled, variables).logits
        np.testing.assert_array_equal(logits[:, [1, 4]], UNKNOWN_LOGIT)

    def test_every_head_of_a_network_has_its_own(self):
        two = from_function(
            lambda key, x: {},
            lambda params, x: jnp.stack([x, 2.0 * x]),
            heads=2,
            name="two",
        )
        temperatures = np.float32([[1.0, 2.0], [4.0, 8.0]])
        logits = apply_committee(
            (Group(with_temperature(two), 2),),
            ({"params": {}, "temperature": temperatures},),
            X,
            train=False,
        )[0].logits
        np.testing.assert_allclose(logits, np.stack([X, X, X / 4, X / 4]), rtol=1e-6)


def test_networks_whose_members_share_weights_have_no_last_layer():
    module = create("mlp", num_classes=3, layers=BatchEnsemble(2))
    assert from_linen(module).head is None


NEW = {"w": np.float32([1.0, 3.0]), "n": np.int32(7), "h": jnp.bfloat16(2.0)}
OLD = {"w": np.float32([5.0, -1.0]), "n": np.int32(4), "h": jnp.bfloat16(4.0)}


class TestInterpolation:
    @pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 1), (0.25, 2)])
    def test_it_lies_between_the_two(self, share, expected):
        mixed = interpolate_weights(NEW, OLD, share)
        by_hand = ([1.0, 3.0], [5.0, -1.0], [2.0, 2.0])[expected]
        np.testing.assert_array_equal(mixed["w"], by_hand)
        assert mixed["n"] == 7 and mixed["h"].dtype == jnp.bfloat16
        assert float(mixed["h"]) == 2.0 + 2.0 * share

    def test_16_bits_are_rounded_once(self, rng):
        a, b = jnp.asarray(rng.normal(size=(2, 99)), jnp.bfloat16)
        exact = 0.7 * np.float64(a) + 0.3 * np.float64(b)
        mixed = np.float64(interpolate_weights(a, b, 0.3))
        np.testing.assert_allclose(mixed, exact, rtol=1.001 * 2.0**-8)


class TestAverages:
    def test_a_soup_is_the_mean_and_equal_importance_changes_nothing(self):
        expected = interpolate_weights(NEW, OLD, 0.5)
        soup = average_weights([NEW, OLD])
        jax.tree.map(np.testing.assert_array_equal, soup, expected)
        assert soup["h"].dtype == jnp.bfloat16 and soup["n"] == 7
        alike = jax.tree.map(lambda w: np.full(np.shape(w), 2.5), NEW)
        even = average_weights([NEW, OLD], [alike, alike])
        jax.tree.map(np.testing.assert_array_equal, even, expected)
        one = average_weights([NEW])
        jax.tree.map(np.testing.assert_array_equal, one, NEW)

    def test_importance_weighs_every_weight_by_itself(self, rng):
        w, f = rng.normal(size=(2, 3, 4, 5)), rng.uniform(size=(2, 3, 4, 5))[1]
        f[:, 0] = 0.0  # nobody knows these: the plain mean
        total = np.where(f.sum(0) > 0, f.sum(0), 1.0)
        weighed = (f * w[0]).sum(0) / total
        expected = np.where(f.sum(0) > 0, weighed, w[0].mean(0))
        trees, known = ([{"a": x} for x in part] for part in (np.float32(w[0]), f))
        found = jax.jit(average_weights)(trees, known)
        np.testing.assert_allclose(found["a"], expected, rtol=1e-5, atol=1e-6)
        # By hand: (3 * 1 + 1 * 5) / 4 and (1 * 3 + 3 * -1) / 4.
        shares = ({"w": np.float32([3, 1])}, {"w": np.float32([1, 3])})
        pair = [{"w": NEW["w"]}, {"w": OLD["w"]}]
        by_hand = average_weights(pair, shares)
        np.testing.assert_array_equal(by_hand["w"], [2.0, 0.0])
        # Interpolation by Fisher information: shares times importances.
        part = [jax.tree.map(lambda s, c=c: c * s, s) for c, s in zip((3, 1), shares)]
        mixed = average_weights(pair, part)
        np.testing.assert_allclose(mixed["w"], [14 / 10, 1.0], rtol=1e-6)
        unknown = {"w": np.float32([1, np.nan])}
        mixed = average_weights(pair, [unknown, shares[1]])
        np.testing.assert_array_equal(np.isnan(mixed["w"]), [False, True])


def test_the_fisher_diagonal_equals_a_float64_sum():
    def logits(params, x):
        return np.tanh(x @ params[0]) @ params[1] + params[2]

    def log_p(params, x):
        z = logits(params, x)
        return z - np.log(np.exp(z).sum(-1, keepdims=True))

    start = [np.float64(PARAMS["hidden"]), *map(np.float64, PARAMS["head"].values())]
    probs = np.exp(log_p(start, np.float64(X)))

    def expected(i):
        def moved(part):
            return log_p([*start[:i], part, *start[i + 1 :]], np.float64(X))

        slopes = difference_quotient(moved, start[i])
        return np.mean(np.sum(probs * slopes**2, -1), -1)

    def apply(params, x):
        return _apply(params, x).logits

    found = jax.jit(diagonal_fisher, static_argnums=0)(apply, PARAMS, X)
    leaves = [found["hidden"], found["head"]["kernel"], found["head"]["bias"]]
    for i, leaf in enumerate(leaves):
        np.testing.assert_allclose(leaf, expected(i), rtol=1e-4, atol=1e-7)
    # By hand: a logistic model has x^2 p q, here 4 / 4 and 4 * 3 / 16.
    # Slopes of 2e-4 of weights in float16, whose squares it cannot hold.
    cases = [(jnp.float32(0), 2.0, 1.0), (jnp.float32(np.log(3) / 2), 2.0, 0.75)]
    for w, x, value in [*cases, (jnp.float16(0), 2e-4, 1e-8)]:
        given = w, jnp.array([x, -x], w.dtype)
        one = diagonal_fisher(lambda w, x: jnp.stack([x * w, 0 * x], -1), *given)
        np.testing.assert_allclose(one, value, rtol=1e-6 if w.dtype == "f4" else 1e-2)


def headed(width, **params):
    return NETWORK.head({"params": params}, np.zeros((EXAMPLES, width), np.float32))


def started(name):
    return starting_from(NETWORK, {"params": {name: X}}, name="n").init(None, X)


ONE, TWO, THREE = ({"a": np.ones(size)} for size in (1, 2, 3))
IDS, ALIKE = "at least two increasing ids below 5", "equal trees and shapes"

test_what_does_not_fit_is_refused = refusals(
    *(
        (lambda ids=ids: with_classes(NETWORK, ids, 5), IDS)
        for ids in ((0,), (1, 0), (0, 0), (-1, 2), (0, 5))
    ),
    (lambda: outputs_of(with_classes(NETWORK, (0, 1), 5)), "3 outputs for 2 class"),
    (lambda: started("body"), "no params/body of the shapes .*; it has hidden, head"),
    (lambda: started("hidden"), "no params/hidden of the shapes"),
    (lambda: headed(5, **PARAMS), "expects 6 features; got 5"),
    (lambda: headed(6, hidden=PARAMS["hidden"]), "no dense layer called head"),
    (lambda: interpolate_weights(TWO, {"b": 1.0}, 0.5), "different trees"),
    (lambda: interpolate_weights(THREE, TWO, 0.5), r"in shape: \(2,\), \(3,\)"),
    (lambda: interpolate_weights(TWO, TWO, 30), "one number, from 0 to 1; got 30"),
    (lambda: interpolate_weights(TWO, TWO, np.ones(2)), "one number, from 0 to 1"),
    (lambda: diagonal_fisher(None, ONE, np.ones((0, 2))), "at least one example"),
    (lambda: average_weights([]), ALIKE),
    (lambda: average_weights([TWO, THREE]), ALIKE),
    (lambda: average_weights([TWO, {"b": np.ones(2)}]), ALIKE),
    (lambda: average_weights([TWO, TWO], [TWO]), ALIKE),
    (lambda: average_weights([TWO], [ONE]), ALIKE),
)

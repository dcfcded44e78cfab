"""Optimisers and schedules, built inside the step from traced coefficients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from churn_jax.configuration.training import OptimizerConfig
from churn_jax.lazy import jax, jnp, optax

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from churn_jax.typing import PyTree

__all__ = [
    "is_fast",
    "is_vector",
    "make_optimizer",
    "make_schedule",
]


# Equal schedules are one object, so that programs can be compared.
@functools.lru_cache(maxsize=64)
def make_schedule(
    config: OptimizerConfig, *, steps_per_epoch: int, total_steps: int
) -> Callable[[ArrayLike], ArrayLike]:
    """Factor of the peak learning rate by the update's number, 0 at the first one."""
    warmup = int(round(config.warmup_epochs * steps_per_epoch))
    if config.schedule == "step":
        # The boundaries count from the start of training, warm-up included. In a short
        # run several can fall on one update: each of them counts.
        scales: dict[int, float] = {}
        for epoch in config.step_epochs:
            edge = max(int(round(epoch * steps_per_epoch)) - warmup, 0)
            scales[edge] = scales.get(edge, 1.0) * config.step_factor
        main = optax.piecewise_constant_schedule(1.0, scales)
    elif config.schedule == "cosine":
        main = optax.cosine_decay_schedule(
            1.0, max(total_steps - warmup, 1), alpha=config.final_factor
        )
    elif config.schedule == "flat_then_linear":
        start = int(round(config.flat_until * total_steps)) - warmup
        length = int(round((config.linear_until - config.flat_until) * total_steps))
        main = optax.linear_schedule(
            1.0, config.final_factor, max(length, 1), max(start, 0)
        )
    else:
        main = optax.constant_schedule(1.0)
    if warmup == 0:
        return main
    ramp = optax.linear_schedule(config.warmup_start, 1.0, warmup)
    return optax.join_schedules([ramp, main], [warmup])


def is_fast(path) -> bool:
    """Whether a leaf's path names fast weights."""
    return _name(path).startswith("fast_")


def is_vector(path) -> bool:
    """Whether a leaf is a bias or a scale; those of several members have two axes."""
    return _name(path) in ("bias", "scale")


def _name(path) -> str:
    return jax.tree_util.keystr(path[-1:], simple=True) if path else ""


def _decayed(config: OptimizerConfig) -> Callable[[PyTree], PyTree]:
    def decays(path, leaf):
        if is_fast(path):
            return False
        vector = jnp.ndim(leaf) < 2 or is_vector(path)
        return config.decay_on == "all" or not vector

    return lambda params: jax.tree_util.tree_map_with_path(decays, params)


def _fast_weights_by(factor: float) -> optax.GradientTransformation:
    def scaled(path, update):
        return update * factor if is_fast(path) else update

    return optax.stateless(
        lambda updates, _: jax.tree_util.tree_map_with_path(scaled, updates)
    )


def make_optimizer(
    config: OptimizerConfig,
    schedule: Callable[[ArrayLike], ArrayLike],
    *,
    learning_rate: jax.Array,
    weight_decay: jax.Array,
) -> optax.GradientTransformation:
    """The optimiser of one network; coefficients may be traced scalars."""
    decay = optax.add_decayed_weights(weight_decay, mask=_decayed(config))
    core = {
        "sgd": lambda: (
            optax.trace(config.momentum, nesterov=config.nesterov)
            if config.momentum > 0
            else optax.identity()
        ),
        "adam": optax.scale_by_adam,
        "adagrad": lambda: optax.scale_by_rss(config.adagrad_accumulator),
    }[config.name]()
    clip = (
        []
        if config.clip_norm is None
        else [optax.clip_by_global_norm(config.clip_norm)]
    )
    order = [decay, core] if config.decay == "l2" else [core, decay]
    rate = optax.scale_by_schedule(lambda count: -learning_rate * schedule(count))
    fast = [] if config.fast_rate == 1.0 else [_fast_weights_by(config.fast_rate)]
    return optax.chain(*clip, *order, rate, *fast)

"""Optimisers and schedules, built inside the step from traced coefficients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import PyTree

from churn_jax.configuration.training import OPTIMIZERS, OptimizerConfig
from churn_jax.ensembles.network import needed_names, parameter_names


def make_schedule(
    config: OptimizerConfig, *, steps_per_epoch: int, total_steps: int
) -> Callable[[ArrayLike], ArrayLike]:
    """Factor of the peak learning rate by the number of the update, counted from 0."""
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
        edges = config.flat_until, config.linear_until
        # A warm-up longer than the flat part does not move the end.
        start, end = (max(round(edge * total_steps) - warmup, 0) for edge in edges)
        length = max(end - start, 1)
        main = optax.linear_schedule(1.0, config.final_factor, length, start)
    else:
        main = optax.constant_schedule(1.0)
    if warmup == 0:
        return main
    ramp = optax.linear_schedule(config.warmup_start, 1.0, warmup)
    return optax.join_schedules([ramp, main], [warmup])


def is_fast(path) -> bool:
    """True if a leaf's path names fast weights."""
    return _name(path).startswith("fast_")


def is_vector(path) -> bool:
    """True if a leaf is a bias or a scale; those of several members have two axes."""
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


def in_float32(tree: PyTree) -> PyTree:
    """A tree whose 16-bit floats are float32, which loses nothing that is added up."""
    half = (jnp.bfloat16, jnp.float16)
    return jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype in half else x, tree)


def _fast_weights_by(factor: float) -> optax.GradientTransformation:
    def scaled(path, update):
        return update * factor if is_fast(path) else update

    along = jax.tree_util.tree_map_with_path
    return optax.stateless(lambda updates, _: along(scaled, updates))


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimiser of one network without its rates, which are traced.

    Equal ones make equal transformations, so that programs can be compared.
    """

    config: OptimizerConfig
    steps_per_epoch: int
    total_steps: int
    own: Any = None  # the user's optimiser; None for a built-in one

    @classmethod
    def of(
        cls, config: OptimizerConfig, *, steps_per_epoch: int, total_steps: int
    ) -> Optimizer:
        """The optimiser of a run."""
        found = OPTIMIZERS.find(config.algorithms[0])
        own = None if found in (sgd, adam, adagrad) else found
        config = dataclasses.replace(config, learning_rate=0.0, weight_decay=0.0)
        return cls(config, steps_per_epoch, total_steps, own)

    def transformation(
        self,
        *,
        learning_rate: jax.Array | float,
        weight_decay: jax.Array | float,
        factor: jax.Array | None = None,
        algorithm: ArrayLike = 0,
    ) -> optax.GradientTransformation:
        """The transformation of one network; `factor` scales its rate or its updates.

        `algorithm` says which of `OptimizerConfig.algorithms` it has; where those are
        several, the transformation keeps a state of each.
        """
        config, parts = self.config, []
        lengths: dict[str, int] = {"total_steps": self.total_steps}
        lengths["steps_per_epoch"] = self.steps_per_epoch
        schedule, decays = make_schedule(config, **lengths), _decayed(config)
        if config.clip_norm is not None:
            parts.append(optax.clip_by_global_norm(config.clip_norm))
        if self.own is not None:
            given = {
                "learning_rate": lambda count: learning_rate * schedule(count),
                "weight_decay": weight_decay,
                "mask": decays,
                **lengths,
            }
            parts.append(_transformation(self.own, config.name, given))
            parts += [] if factor is None else [optax.scale(factor)]
        else:
            rate = learning_rate if factor is None else learning_rate * factor
            cores = [OPTIMIZERS.find(name)(config) for name in config.algorithms]
            core = cores[0] if len(cores) == 1 else _one_of(cores, algorithm)
            decay = optax.add_decayed_weights(weight_decay, mask=decays)
            parts += [decay, core] if config.decay == "l2" else [core, decay]
            parts.append(optax.scale_by_schedule(lambda count: -rate * schedule(count)))
        if config.fast_rate != 1.0:
            parts.append(_fast_weights_by(config.fast_rate))
        (init, own), to = optax.chain(*parts), in_float32
        return optax.GradientTransformation(
            lambda params: init(to(params)),
            lambda updates, state, params=None: own(to(updates), state, to(params)),
        )


def _transformation(
    own: Any, name: str, given: Mapping[str, Any]
) -> optax.GradientTransformation:
    """The user's optimiser, made by calling it if it is a function."""
    if _is_transformation(own):
        return own
    for needed in needed_names(own):
        if needed not in given:
            raise ValueError(
                f"optimizer {name} needs {needed!r}; a function can be given "
                f"{', '.join(given)}, everything else needs a default"
            )
    names = parameter_names(own)
    made = own(**{k: v for k, v in given.items() if k in names})
    if not _is_transformation(made):
        raise ValueError(
            f"optimizer {name} returns a {type(made).__name__}; it must return an "
            "optax.GradientTransformation"
        )
    return made


def _one_of(
    cores: Sequence[optax.GradientTransformation], which: ArrayLike
) -> optax.GradientTransformation:
    """Updates of the core number `which`; all of them keep their state."""

    def init(params):
        return tuple(core.init(params) for core in cores)

    def update(updates, state, params=None):
        made = [core.update(updates, s, params) for core, s in zip(cores, state)]
        moved, kept = zip(*made)
        # Not a product with zero: an algorithm that is not the network's may overflow.
        chosen = jax.tree.map(lambda *parts: jax.lax.select_n(which, *parts), *moved)
        return chosen, tuple(kept)

    return optax.GradientTransformation(init, update)


def _is_transformation(value: Any) -> bool:
    return hasattr(value, "init") and hasattr(value, "update")


def sgd(config: OptimizerConfig) -> optax.GradientTransformation:
    """Momentum, plain or Nesterov's; none if it is 0."""
    if config.momentum == 0:
        return optax.identity()
    return optax.trace(config.momentum, nesterov=config.nesterov)


def adam(config: OptimizerConfig) -> optax.GradientTransformation:
    """Adam's moments."""
    del config
    return optax.scale_by_adam()


def adagrad(config: OptimizerConfig) -> optax.GradientTransformation:
    """AdaGrad's accumulator."""
    return optax.scale_by_rss(config.adagrad_accumulator)

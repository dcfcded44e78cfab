"""Small networks of each framework, the kinds that the adapters meet."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from churn_jax.ensembles import Outputs, from_function, from_linen

CLASSES = 3


class Dropped(nn.Module):
    """Linen, with `train`, dropout, batch norm and an axis name."""

    axis_name: str | None = None

    @nn.compact
    def __call__(self, x, train):
        x = nn.Dense(8)(x.reshape(x.shape[0], -1))
        x = nn.BatchNorm(use_running_average=not train, axis_name=self.axis_name)(x)
        x = nn.Dropout(0.5, deterministic=not train)(nn.relu(x))
        return nn.Dense(CLASSES)(x)


class Plain(nn.Module):
    """Linen without `train`."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(CLASSES)(x)


class Heads(nn.Module):
    """K members that share a trunk: logits `[K, B, C]`, features `[B, D]`."""

    heads: int = 2

    @nn.compact
    def __call__(self, x):
        features = nn.relu(nn.Dense(4)(x))
        logits = nn.Dense(self.heads * CLASSES)(features)
        logits = jnp.moveaxis(logits.reshape(-1, self.heads, CLASSES), 1, 0)
        return Outputs(logits, features)


class NnxNet(nnx.Module):
    """NNX with batch norm and dropout."""

    def __init__(self, inputs, classes=CLASSES, *, rngs, rate=0.5):
        self.hidden = nnx.Linear(inputs, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.head = nnx.Linear(8, classes, rngs=rngs)

    def __call__(self, x):
        x = self.hidden(x.reshape(x.shape[0], -1))
        return self.head(self.dropout(nnx.relu(self.norm(x))))


def affine(inputs, classes=CLASSES):
    """A plain function: one dense layer, parameters in a dict."""

    def init(key, x):
        del x
        kernel = jax.random.normal(key, (inputs, classes)) / jnp.sqrt(inputs)
        return {"kernel": kernel, "bias": jnp.zeros(classes)}

    def apply(params, x):
        flat = x.reshape(x.shape[0], -1)
        return flat @ params["kernel"] + params["bias"][None]

    return from_function(init, apply, name="affine")


DROPPED, PLAIN = from_linen(Dropped()), from_linen(Plain())


def parted(inputs, *, part=True, gate=False, heads=0):
    """`affine` that also returns a part, log-weights, or both, per head if it has."""
    base = affine(inputs)

    def apply(params, x):
        logits = base.apply({"params": params}, x)[0].logits
        rows = -logits
        if heads:
            logits = jnp.stack([logits * (k + 1.0) for k in range(heads)])
            rows = -logits
        return Outputs(
            logits,
            features=2.0 * rows,
            part=rows if part else None,
            gate=jnp.sum(rows, axis=-1) if gate else None,
        )

    return from_function(
        lambda key, x: base.init(key, x)["params"],
        apply,
        heads=heads or 1,
        name="parted" if part else "whole",
    )

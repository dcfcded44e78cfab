"""Networks, optimiser, arrays, a method and a metric of your own: `OUT [MESH]`."""

import sys

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import nnx

import churn_jax
from churn_jax import losses, methods


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Dense(64)(x.reshape(len(x), -1))
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        return nn.Dense(10)(nn.Dropout(0.1, deterministic=not train)(x))


class NNX(nnx.Module):
    def __init__(self, *, rngs):
        self.first, self.last = (nnx.Linear(64, n, rngs=rngs) for n in (64, 10))
        self.norm, self.drop = nnx.BatchNorm(64, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.first(x.reshape(len(x), -1))))
        return self.last(self.drop(x))


@methods.pytree
class Agreeing(methods.Method):
    """Pairs of networks; `beta` times their squared distance joins the loss."""

    beta: float = methods.coefficient(0.1)
    members: int = methods.static(2)
    deploy: str = methods.static("member")  # one of the two is served

    def loss(self, apply, variables, batch, *, teacher, step, key):
        logits, labels, state = methods.forward(apply, variables, batch)  # [2, B, C]
        own = jnp.sum(batch.mean(losses.cross_entropy(logits, labels)))
        gap = batch.mean(jnp.mean(jnp.square(logits[0] - logits[1]), axis=-1))
        return methods.LossOutput(own + self.beta * gap, {"gap": gap}, state)


def margin(logits, labels):
    """Between the two highest logits, `[R, N, C]` to `[R]`."""
    second, first = np.moveaxis(np.sort(logits)[..., -2:], -1, 0)
    return np.mean(first - second, axis=-1)


def main(out, mesh="1,1,1"):
    digits = churn_jax.data.load("digits")
    for network in (Linen, NNX):
        result = churn_jax.study(
            data=tuple(
                (part.images, part.labels) for part in (digits.train, digits.test)
            ),
            methods={"baseline": methods.ERM()}
            | {f"beta={beta}": Agreeing(beta=beta) for beta in (0.01, 0.1, 1.0)},
            model=network,
            optimizer=optax.lion(optax.cosine_decay_schedule(1e-3, 10 * 15)),
            metrics=[margin],
            **dict(epochs=10, batch_size=32, replicas=4, mesh=mesh),
            out=f"{out}/{network.__name__}",
        )
        print(result.table, result.report(), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

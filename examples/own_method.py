"""A loss, a method, a network, a report column and a study of your own, in one file.

With its folder on PYTHONPATH, `churn-jax study own_method:squeezed_digits` trains it;
`docs/how_to/own_method.md` has more commands.
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from churn_jax import losses, studies
from churn_jax.methods import ERM, LossOutput, Method, coefficient, forward, pytree
from churn_jax.reports import column
from churn_jax.training import TrainConfig


def squared_logits(logits):
    """Mean square of each example's logits, `[..., C]` to `[...]`."""
    return jnp.mean(jnp.square(logits.astype(jnp.float32)), axis=-1)


@pytree
class Squeezed(Method):
    """Cross-entropy plus `strength` times the mean squared logit."""

    strength: float = coefficient(0.03)

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """The sum over members of means over the batch, without its padding."""
        logits, labels, model_state = forward(apply, variables, batch)
        cross_entropy = jnp.sum(batch.mean(losses.cross_entropy(logits, labels)))
        squeeze = jnp.sum(batch.mean(squared_logits(logits)))
        terms = {"cross_entropy": cross_entropy, "squeeze": squeeze}
        return LossOutput(cross_entropy + self.strength * squeeze, terms, model_state)


class Net(nn.Module):
    """One hidden layer with layer norm: images `[B, ...]` to logits `[B, C]`."""

    num_classes: int

    @nn.compact
    def __call__(self, x):
        """Logits of one batch."""
        x = nn.gelu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.num_classes)(nn.LayerNorm()(x))


@column("Margin", narrow=True)
def margin(logits, labels):
    """Mean difference of the two highest logits of one run."""
    second, first = np.sort(logits, axis=-1)[:, -2:].T
    return np.mean(first - second)


def squeezed_digits() -> studies.StudyConfig:
    """Two rows of three runs on the embedded digits: seconds on a CPU."""
    return studies.StudyConfig(
        name="squeezed-digits",
        title="Squeezed logits on the UCI hand-written digits",
        data=studies.DataConfig("digits"),
        model=studies.ModelConfig("own_method:Net"),
        train=TrainConfig(replicas=3, epochs=20),
        methods=(
            studies.MethodSpec("baseline", "Baseline", ERM()),
            studies.MethodSpec("squeezed", "Squeezed logits", Squeezed()),
        ),
        columns=("accuracy", "churn", "own_method:margin"),
    )

"""Plain training and the minimum-entropy regularisers; also plain ensembles."""

from __future__ import annotations

from churn_jax import losses
from churn_jax.lazy import jnp
from churn_jax.methods.base import Method, Ramp
from churn_jax.methods.batch import LossOutput, forward
from churn_jax.methods.fields import coefficient, pytree, share, static

REGULARIZERS = ("entropy", "uniform_skl")


def regularizer(kind: str, logits, top_k: int | None):
    """`EReg`, `[..., C]` to `[...]`: `H(f)` or `-SKL(f, Unif)`."""
    if kind == "entropy":
        return losses.entropy(logits, top_k=top_k)
    return -losses.uniform_symmetric_kl(logits, top_k=top_k)


@pytree
class ERM(Method):
    r"""Plain cross-entropy training of M independent members.

    `L = sum_m L(w_m)` with `L(w) = 1/n sum_i CE(y_i, f(x_i; w))`. M = 1 is the
    baseline; M > 1 is a deep ensemble, which predicts with the mean of its members'
    probabilities. A sum, not a mean, over members: nothing couples them, so each trains
    exactly as it would alone.

    With `member_sample="bootstrap"` it is bagging: member m trains on its own Poisson
    bootstrap, `L(w_m) = 1/n sum_i k_mi CE(y_i, f(x_i; w_m))`, where the counts `k_mi`
    are drawn once per member and example from the seed `sample` of the replica. With
    `member_sample="subset"` member m trains on its own random share q of the training
    set: `k_mi` is `1 / q` with probability q, else 0.

    Attributes:
        member_sample: `shared`; `bootstrap` or `subset` for a separate sample per
            member; `split` for a separate part of every batch, where the network's
            members share weights and split the batch.
        member_share: q of `subset`, in (0, 1].
        input_scale: factor of the variance of the first layer's initial weights (the
            anti-distillation paper's s): they are multiplied by its square root.
        over_members: `sum`, or `mean` for members that share weights (BatchEnsemble,
            MIMO), whose gradient would otherwise grow with their number.

    Notes:
        Counts are independent Poisson(1) draws. A multinomial bootstrap has the same
        counts conditioned on their sum being N; for N in the thousands the two are
        equivalent (the sum differs from N by about its square root). Poisson counts
        need no table of N numbers per member and no pass over the whole set.
        Members' shares are drawn independently, example by example, so two of them
        have `q^2` of the training set in common. The loss is divided by the size of
        the whole batch, so a member's step is on average as long as on all examples.

    References:
        [reproducibility] Eq. 2
        [anti-distillation] Sec. 2
    """

    member_sample: str = static("shared")
    member_share: float = static(1.0)
    input_scale: float = coefficient(1.0, "at least 0")
    over_members: str = static("sum", of=("sum", "mean"))

    @property
    def is_independent(self) -> bool:
        """True for this loss; a subclass may have another."""
        return type(self).loss is ERM.loss

    @property
    def is_plain(self) -> bool:
        """One network that sees all examples."""
        alone = self.members == 1 and self.member_sample == "shared"
        return alone and self.is_independent

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Sum (or mean) over members of the mean cross-entropy."""
        del teacher, step, key
        logits, labels, model_state = forward(apply, variables, batch)
        each = batch.member_mean(losses.cross_entropy(logits, labels))
        cross_entropy = jnp.sum(each) if self.over_members == "sum" else jnp.mean(each)
        return LossOutput(cross_entropy, {"cross_entropy": cross_entropy}, model_state)


@pytree
class MinimumEntropy(Method):
    r"""Cross-entropy with a minimum-entropy regulariser, as a convex combination.

    `(1 - alpha) L(w) + alpha 1/n sum_i H(f(x_i; w))` (Eq. 6), or
    `(1 - alpha) L(w) - alpha 1/n sum_i SKL(f(x_i; w), Unif)` (Eq. 7); summed over
    members where there are several.

    Attributes:
        alpha: weight of the regulariser, in `[0, 1]`.
        kind: `entropy` (Eq. 6) or `uniform_skl` (Eq. 7).
        top_k: penalise only the k most likely classes (the paper: 10 on ImageNet).
        ramp: how alpha grows.

    Notes:
        Eq. 7 is unbounded below; its gradient in the logits is bounded.

    References:
        [reproducibility] Eqs. 6, 7
    """

    alpha: float = share(0.1)
    kind: str = static("entropy", of=REGULARIZERS)
    top_k: int | None = static(None)
    ramp: Ramp = Ramp()

    @property
    def is_plain(self) -> bool:
        """One network without the regulariser."""
        return self.members == 1 and self.alpha == 0

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """Sum over members of the regularised risk."""
        del teacher, key
        logits, labels, model_state = forward(apply, variables, batch)
        cross_entropy = batch.total(losses.cross_entropy(logits, labels))
        penalty = batch.total(regularizer(self.kind, logits, self.top_k))
        alpha = self.ramp(self.alpha, step)
        loss = (1.0 - alpha) * cross_entropy + alpha * penalty
        terms = {"cross_entropy": cross_entropy, self.kind: penalty}
        return LossOutput(loss, terms, model_state)

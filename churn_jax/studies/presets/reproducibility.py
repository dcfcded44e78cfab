"""The first paper's methods as rows, and its study on the embedded digits."""

import dataclasses

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.methods.base import Ramp
from churn_jax.methods.codistillation import Codistillation
from churn_jax.methods.ensemble_distillation import EnsembleDistillation
from churn_jax.methods.erm import ERM, MinimumEntropy


def paper_rows(
    *,
    entropy: float | None = None,
    uniform_skl: float | None = None,
    distillation: tuple[float, float] | None = None,
    codistill_ce: float | None = None,
    codistill_skl: float | None = None,
    combined: tuple[float, float] | None = None,
    ramp_steps: float,
    stale: tuple[int, float] | None = None,
    top_k: int | None = None,
) -> tuple[MethodSpec, ...]:
    """The methods of the paper's Tables 2 and 7; None leaves a row out.

    Args:
        entropy: alpha of Eq. 6.
        uniform_skl: alpha of Eq. 7.
        distillation: alpha and temperature of the distilled 2-ensemble, which brings
            the row of its teacher.
        codistill_ce: beta of the cross-entropy between peers.
        codistill_skl: beta of Eq. 9.
        combined: alpha and beta of Eq. 19.
        ramp_steps: updates in which co-distillation's coefficients grow to their
            value; the paper's ramp is linear, its length is not given.
        stale: Co-distill CE as Anil et al. have it, whose numbers are not given: copies
            of the peers refreshed every so many updates, and the burn-in in updates
            before the peers matter. None is joint updates with a linear ramp.
        top_k: the regularisers look at so many classes (ImageNet: 10).
    """
    linear = Ramp("linear", ramp_steps)
    rows = [MethodSpec("baseline", "Baseline", ERM(), "[reproducibility] Eq. 2")]

    def add(name, label, method, equation, teacher=None):
        place = f"[reproducibility] {equation}"
        rows.append(MethodSpec(name, label, method, place, teacher=teacher))

    if entropy is not None:
        add("entropy", "Entropy", MinimumEntropy(alpha=entropy, top_k=top_k), "Eq. 6")
    if uniform_skl is not None:
        method = MinimumEntropy(alpha=uniform_skl, kind="uniform_skl", top_k=top_k)
        add("uniform_skl", "SKL", method, "Eq. 7")
    if distillation is not None:
        alpha, temperature = distillation
        ensemble = ERM(members=2, deploy="mean_probs")
        student = EnsembleDistillation(alpha=alpha, temperature=temperature)
        add("ensemble", "2-Ensemble", ensemble, "Table 7")
        add("distillation", "2-Ensemble distil.", student, "Table 2", "ensemble")
    if codistill_ce is not None:
        method = Codistillation(
            beta=codistill_ce, divergence="cross_entropy", beta_ramp=linear
        )
        if stale is not None:
            refresh_steps, burn_in = stale
            method = dataclasses.replace(
                method,
                update="independent",
                refresh_steps=refresh_steps,
                beta_ramp=Ramp("step", burn_in),
            )
        add("codistill_ce", "Co-distill CE", method, "Eq. 18")
    if codistill_skl is not None:
        method = Codistillation(beta=codistill_skl, beta_ramp=linear)
        add("codistill_skl", "Co-distill SKL", method, "Eq. 9")
    if combined is not None:
        alpha, beta = combined
        method = Codistillation(
            beta=beta, alpha=alpha, top_k=top_k, beta_ramp=linear, alpha_ramp=linear
        )
        label = "Co-distill SKL + Entropy"
        add("codistill_skl_entropy", label, method, "Eq. 19")
    return tuple(rows)


def digits() -> StudyConfig:
    """UCI digits, few training examples, a wide MLP: churn in minutes on a laptop."""
    epochs, steps_per_epoch = 80, 3
    return StudyConfig(
        name="digits",
        title="Churn on the UCI hand-written digits",
        data=DataConfig(name="digits", train_size=192, validation=600),
        model=ModelConfig(name="mlp", features=(256, 256)),
        train=TrainConfig(
            replicas=10,
            epochs=epochs,
            batch_size=64,
            eval_every_epochs=10,
            optimizer=OptimizerConfig(
                learning_rate=0.05,
                weight_decay=1e-4,
                schedule="cosine",
                warmup_epochs=2,
            ),
            augmentation=Augmentation(shift=1),
        ),
        methods=paper_rows(
            # Picked on the validation split.
            entropy=0.05,
            uniform_skl=0.02,
            distillation=(0.9, 4.0),
            codistill_ce=2.0,
            codistill_skl=0.6,
            combined=(0.2, 0.6),
            ramp_steps=float(epochs * steps_per_epoch // 4),
        ),
    )

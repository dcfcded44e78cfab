"""Named studies. `tests/golden/` freezes each, so a changed default shows in review."""

import dataclasses
import difflib
from collections.abc import Callable

from churn_jax.data.augment import Augmentation
from churn_jax.methods import ERM, Codistillation, EnsembleDistillation, MinimumEntropy
from churn_jax.methods.base import Ramp
from churn_jax.studies.config import DataConfig, MethodSpec, ModelConfig, StudyConfig
from churn_jax.training.config import TrainConfig
from churn_jax.training.optim import OptimizerConfig

__all__ = ["PRESETS", "preset"]


def _rows(
    *,
    entropy: float,
    uniform_skl: float,
    distillation: float,
    temperature: float,
    codistill_ce: float,
    codistill_skl: float,
    combined: tuple[float, float],
    ramp_steps: float,
) -> tuple[MethodSpec, ...]:
    """The methods of the paper's Tables 2 and 7, with their coefficients."""
    linear = Ramp("linear", ramp_steps)
    alpha, beta = combined
    return (
        MethodSpec("baseline", "Baseline", ERM(), "[reproducibility] Eq. 2"),
        MethodSpec(
            "entropy",
            "Entropy",
            MinimumEntropy(alpha=entropy),
            "[reproducibility] Eq. 6",
        ),
        MethodSpec(
            "uniform_skl",
            "SKL",
            MinimumEntropy(alpha=uniform_skl, kind="uniform_skl"),
            "[reproducibility] Eq. 7",
        ),
        MethodSpec(
            "ensemble",
            "2-Ensemble",
            ERM(members=2, deploy="mean_probs"),
            "[reproducibility] Table 7",
        ),
        MethodSpec(
            "distillation",
            "2-Ensemble distil.",
            EnsembleDistillation(alpha=distillation, temperature=temperature),
            "[reproducibility] Table 2",
            teacher="ensemble",
        ),
        MethodSpec(
            "codistill_ce",
            "Co-distill CE",
            Codistillation(
                beta=codistill_ce, divergence="cross_entropy", beta_ramp=linear
            ),
            "[reproducibility] Eq. 18",
        ),
        MethodSpec(
            "codistill_skl",
            "Co-distill SKL",
            Codistillation(beta=codistill_skl, beta_ramp=linear),
            "[reproducibility] Eq. 9",
        ),
        MethodSpec(
            "codistill_skl_entropy",
            "Co-distill SKL + Entropy",
            Codistillation(beta=beta, alpha=alpha, beta_ramp=linear, alpha_ramp=linear),
            "[reproducibility] Eq. 19",
        ),
    )


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
        methods=_rows(
            # Picked on the validation split by
            # experiments/reproducibility/select_digits.py.
            entropy=0.05,
            uniform_skl=0.02,
            distillation=0.9,
            temperature=4.0,
            codistill_ce=2.0,
            codistill_skl=0.6,
            combined=(0.2, 0.6),
            ramp_steps=float(epochs * steps_per_epoch // 4),
        ),
    )


PRESETS: dict[str, Callable[[], StudyConfig]] = {"digits": digits}


def tiny(config: StudyConfig) -> StudyConfig:
    """The same study with two replicas and two epochs, for tests and first looks."""
    train = dataclasses.replace(config.train, replicas=2, epochs=2, eval_every_epochs=1)
    return dataclasses.replace(config, name=f"{config.name}-tiny", train=train)


def preset(name: str) -> StudyConfig:
    """The study called `name`; a suffix `:tiny` shrinks it to seconds.

    Raises:
        ValueError: there is none; the message has the closest names.
    """
    base, _, form = name.partition(":")
    if base not in PRESETS or form not in ("", "tiny"):
        close = difflib.get_close_matches(base, PRESETS, n=2, cutoff=0.3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        known = ", ".join([*PRESETS, *(f"{p}:tiny" for p in PRESETS)])
        raise ValueError(f"unknown preset {name!r}; known: {known}{hint}")
    config = PRESETS[base]()
    return tiny(config) if form == "tiny" else config

"""The reproducibility paper's questions on a CPU: the embedded digits, MNIST and more.

MNIST and Fashion-MNIST have LeNet5 on few training examples, and the ablations. The
paper has no experiment on these sets: the recipes and every coefficient are ours.
"""

import dataclasses
from typing import Any

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.methods.erm import ERM
from churn_jax.studies.presets.reproducibility import paper_rows
from experiments.reproducibility import rows as ablations
from experiments.variants import variant

# The recipe on MNIST: lengths in epochs, coefficients picked on the validation split.
TRAIN_SIZE = 1000
VALIDATION = 5000
EPOCHS = 40
LONGER = 4  # times, in `mnist-long`
BATCH_SIZE = 64
WARMUP_EPOCHS = 2
BEST: dict[str, Any] = {
    "entropy": 0.05,
    "uniform_skl": 0.002,
    "distillation": (0.9, 1.0),  # alpha, temperature
    "codistill_ce": 1.0,
    "codistill_skl": 4.0,
    "combined": (0.2, 4.0),  # alpha, beta
}
# The design claims: one beta per disagreement, since their gradients differ in size.
BETAS = {"skl": 4.0, "l1": 2.0, "ce": 1.0, "ce_both": 2.0}

SIZES = (500, 1000, 2000, 4000, 8000)


def _lengths(epochs: int, train_size: int = TRAIN_SIZE) -> dict[str, Any]:
    """Peers are up to an epoch old, and are copied after a quarter of the training.

    Co-distillation's coefficients grow until its end, as the learning rate falls: with
    large values both, these networks without batch norm diverge.
    """
    steps_per_epoch = train_size // BATCH_SIZE
    steps = epochs * steps_per_epoch
    stale = steps_per_epoch, float(steps // 4)
    return {"ramp_steps": float(steps), "stale": stale}


def _study(
    name: str,
    title: str,
    methods: tuple[MethodSpec, ...],
    *,
    data: DataConfig | None = None,
    model: ModelConfig = ModelConfig(name="lenet5"),
    epochs: int = EPOCHS,
    learning_rate: float = 0.03,
    augmentation: Augmentation = Augmentation(shift=2),
) -> StudyConfig:
    return StudyConfig(
        name=name,
        title=title,
        data=data or _few("mnist"),
        model=model,
        train=TrainConfig(
            replicas=10,
            epochs=epochs,
            batch_size=BATCH_SIZE,
            eval_every_epochs=epochs // 4,
            optimizer=OptimizerConfig(
                learning_rate=learning_rate,
                weight_decay=1e-4,
                schedule="cosine",
                warmup_epochs=WARMUP_EPOCHS,
            ),
            augmentation=augmentation,
        ),
        methods=methods,
    )


def _few(data: str) -> DataConfig:
    return DataConfig(name=data, train_size=TRAIN_SIZE, validation=VALIDATION)


def _headline(
    name: str,
    title: str,
    data: DataConfig,
    augmentation: Augmentation,
    epochs: int,
    **best: Any,
) -> StudyConfig:
    """All methods with a wide MLP on few examples; `best` as in `paper_rows`.

    The methods, linear ramps and Anil et al.'s form of Co-distill CE are the paper's;
    network, recipe and lengths of ramps are ours. Coefficients have the lowest churn on
    validation data among those that cost no accuracy there; alpha of the combination is
    that of Entropy alone. The paper's grid has the alphas of Entropy, not those of SKL
    (it starts at 0.05) nor the betas (it ends at 0.08).
    """
    return _study(
        name,
        title,
        paper_rows(**best, **_lengths(epochs, data.train_size or 0)),
        data=data,
        model=ModelConfig(name="mlp", features=(256, 256)),
        epochs=epochs,
        learning_rate=0.05,
        augmentation=augmentation,
    )


def headline() -> StudyConfig:
    """The methods of Tables 2 and 7 on the digits, in two minutes."""
    return _headline(
        "headline-reproducibility",
        "Churn on the UCI hand-written digits, long training",
        DataConfig(name="digits", train_size=192, validation=600),
        Augmentation(shift=1),
        epochs=150,
        entropy=0.1,
        uniform_skl=0.002,
        distillation=(0.9, 2.0),
        codistill_ce=2.0,
        codistill_skl=2.0,
        combined=(0.1, 2.0),
    )


def headline_14x14() -> StudyConfig:
    """The methods of Tables 2 and 7 on 1,000 examples of Fashion-MNIST, 14x14."""
    return _headline(
        "headline-reproducibility-14x14",
        f"Churn on Fashion-MNIST at 14x14, {TRAIN_SIZE:,} training examples",
        DataConfig(name="fashion14.npz", train_size=TRAIN_SIZE, validation=10_000),
        Augmentation(shift=1, flip=True),
        epochs=100,
        entropy=0.5,
        uniform_skl=0.002,
        distillation=(0.9, 2.0),
        codistill_ce=2.0,
        codistill_skl=4.0,
        combined=(0.5, 4.0),
    )


def equal_cost_14x14() -> StudyConfig:
    """Two networks, ensembled or co-distilled, and one with the weights of both."""
    study = headline_14x14()
    wide = MethodSpec(
        "wide",
        "One network, twice the weights",
        ERM(),
        "[reproducibility] Eq. 2",
        model=ModelConfig(name="mlp", features=(396, 396)),
    )
    return dataclasses.replace(
        study,
        name="equal-cost-14x14",
        title="Two networks against one of their cost, Fashion-MNIST at 14x14",
        methods=(*study.select(("baseline", "ensemble", "codistill_skl")), wide),
    )


def _paper_rows(epochs: int = EPOCHS) -> tuple[MethodSpec, ...]:
    return paper_rows(**BEST, **_lengths(epochs))


def mnist() -> StudyConfig:
    """All methods on MNIST."""
    title = f"Churn on MNIST, {TRAIN_SIZE:,} training examples"
    return _study("mnist", title, _paper_rows())


def mnist_long() -> StudyConfig:
    """The study `mnist`, trained `LONGER` times as long with the same coefficients.

    The weights of `mnist` fit their training set and its learning rate ends at zero,
    yet longer training still lowers churn: this is where it has settled.
    """
    title = f"Churn on MNIST, {TRAIN_SIZE:,} training examples, long training"
    epochs = LONGER * EPOCHS
    return _study("mnist-long", title, _paper_rows(epochs), epochs=epochs)


def fashion_mnist() -> StudyConfig:
    """All methods on Fashion-MNIST."""
    title = f"Churn on Fashion-MNIST, {TRAIN_SIZE:,} training examples"
    data = _few("fashion_mnist")
    return _study("fashion_mnist", title, _paper_rows(), data=data)


def table1_mnist() -> StudyConfig:
    """Which seeds cause churn, as in Table 1."""
    title = "What causes churn on MNIST: initialisation, order, augmentation"
    return _study("table1-mnist", title, ablations.fixed_seeds())


def table3_mnist() -> StudyConfig:
    """Weight decay on and off, as in Table 3."""
    best = {name: BEST[name] for name in ("entropy", "uniform_skl", "codistill_skl")}
    methods = paper_rows(**best, **_lengths(EPOCHS))
    title = "Churn on MNIST with and without weight decay"
    return _study("table3-mnist", title, ablations.with_and_without_decay(methods))


def table6_mnist() -> StudyConfig:
    """Initialisation and input data, as in Table 6."""
    title = "What causes churn on MNIST: initialisation and input data"
    return _study("table6-mnist", title, ablations.fixed_input())


def train_size_mnist() -> StudyConfig:
    """Churn against the number of training examples.

    Every size gets the same number of updates, so a small set is passed over more
    often: with equal epochs it would be trained less, and churn from stopping early
    would pass for churn from few examples. 1,000 examples are the study `mnist`.
    """
    compared = ("baseline", "codistill_skl")
    rows = [row for row in _paper_rows() if row.name in compared]
    methods: list[MethodSpec] = []
    for size in SIZES:
        scale = TRAIN_SIZE / size
        train = (
            ("epochs", max(round(EPOCHS * scale), 1)),
            ("eval_every_epochs", max(round(EPOCHS * scale) // 4, 1)),
            ("optimizer.warmup_epochs", WARMUP_EPOCHS * scale),
        )
        own: dict[str, Any] = {"train": train, "train_size": size}
        methods += [variant(r, str(size), f"{size:,} examples", **own) for r in rows]
    title = "Churn against training-set size on MNIST"
    study = _study("train-size-mnist", title, tuple(methods))
    most, baseline = max(SIZES), f"baseline_{TRAIN_SIZE}"
    return replaced(study, [("data.train_size", most), ("baseline", baseline)])


def claims_mnist() -> StudyConfig:
    """The choices of Appendix C and section 4, one by one."""
    methods = ablations.design_claims(betas=BETAS, **_lengths(EPOCHS))
    title = "The design of co-distillation on MNIST, claim by claim"
    return _study("claims-mnist", title, methods)


def cross_sample_mnist() -> StudyConfig:
    """Cross-sample churn: every run draws its own training set."""
    ramp_steps = _lengths(EPOCHS)["ramp_steps"]
    methods = ablations.cross_sample(beta=BETAS["skl"], ramp_steps=ramp_steps)
    title = "Churn between resampled training sets on MNIST"
    study = _study("cross-sample-mnist", title, methods)
    drawn = [("train.sample", "bootstrap"), ("train.seeds.sample", "varied")]
    return replaced(study, drawn)

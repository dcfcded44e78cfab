"""The second paper's rows and recipe for clicks, and its study on synthetic ones.

Of the paper are three components, AdaGrad, ReLU towers that narrow and truncated normal
weights. Ours: embeddings of 8, towers of 64, 32 and 16, batches of 256, learning rate
0.1 with accumulators of 0.1, probabilities averaged, and replicas that differ by the
shuffle inside windows of the stream. The first window is common to all and is not
counted: inside it replicas that score the same example have learned from none to all of
the window, which says nothing about reproducibility and would be most of the difference
in a short stream.

The paper does not say whether its label loss is summed or averaged over a mini-batch.
Here it is averaged (`AntiDistillation.label_reduction`), and the lambdas of the table
are too strong: on Diabetes 130 and on synthetic clicks correlation with lambda 1 raised
the log loss by half (paper: 0.9 %), since the uncentred penalty drives the mean score
of a rare label towards zero. Against a sum the same lambdas weigh 1/256 as much.
"""

import dataclasses

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.network import ModelConfig, Towers
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import (
    OnePass,
    OptimizerConfig,
    Seeds,
    TrainConfig,
)
from churn_jax.methods.anti_distillation import AntiDistillation
from churn_jax.methods.erm import ERM

COMPONENTS = 3
COLUMNS = (
    "nll",
    "log_loss_change",
    "rank_loss_change",
    "prediction_difference",
    "positive_prediction_difference",
    "positive_prediction_difference_change",
    "hamming_prediction_difference",
    "calibration",
)
# The learning rate is ours: of 0.02, 0.05 and 0.1 the one whose row without a penalty
# had the smallest log loss over synthetic clicks, Adult and Diabetes 130.
_ADAGRAD = OptimizerConfig(
    name="adagrad",
    learning_rate=0.1,
    momentum=0.0,
    nesterov=False,
    weight_decay=0.0,
    adagrad_accumulator=0.1,
)
_EQUATIONS = {
    "correlation": "[anti-distillation] Eqs. 2, 5, 6",
    "covariance": "[anti-distillation] Eqs. 3, 5, 6",
    "difference": "[anti-distillation] Eqs. 6, 7",
}


def plain_row(s: float = 1.0) -> MethodSpec:
    """Components without a penalty."""
    name, label = "baseline", "No AD"
    if s != 1.0:
        name, label = f"baseline_s{s:g}", f"No AD, s {s:g}"
    method = ERM(members=COMPONENTS, deploy="mean_probs", input_scale=s)
    return MethodSpec(name, label, method, "[anti-distillation] Table 3")


def penalised_row(penalty: str, strength: float, s: float = 1.0) -> MethodSpec:
    """A row of Table 3, named as its published numbers are."""
    name = f"{penalty}_{strength:g}_s{s:g}".replace(".", "_")
    return MethodSpec(
        name,
        f"{penalty.capitalize()}, λ {strength:g}, s {s:g}",
        AntiDistillation(
            members=COMPONENTS,
            deploy="mean_probs",
            strength=strength,
            penalty=penalty,
            input_scale=s,
        ),
        _EQUATIONS[penalty],
    )


def click_study(
    name: str,
    title: str,
    data: DataConfig,
    methods: tuple[MethodSpec, ...],
    *,
    replicas: int = 10,
    window: int = 8192,
    features: tuple[int, ...] = (64, 32, 16),
    published: str = "",
) -> StudyConfig:
    """The recipe; the first window is common to all replicas."""
    return StudyConfig(
        name=name,
        title=title,
        data=data,
        model=ModelConfig("click", features=features, towers=Towers()),
        train=TrainConfig(
            replicas=replicas,
            epochs=1,
            batch_size=256,
            optimizer=_ADAGRAD,
            seeds=Seeds(init="fixed", order="varied"),
            one_pass=OnePass(window, warm_examples=window),
        ),
        methods=methods,
        published=published,
        columns=COLUMNS,
    )


def clicks() -> StudyConfig:
    """Synthetic clicks: runs on a fresh machine without any file."""
    return click_study(
        "clicks",
        "Anti-distillation on synthetic clicks",
        DataConfig("clicks", validation=0.1),
        (
            plain_row(),
            penalised_row("correlation", 0.002),
            penalised_row("correlation", 0.02),
            penalised_row("covariance", 1.0),
        ),
        replicas=6,
        features=(32, 16, 8),
    )


def tiny_clicks(config: StudyConfig) -> StudyConfig:
    """The same study with two replicas, four small windows and two hidden units."""
    one_pass = config.train.one_pass or OnePass()
    shared = min(one_pass.warm_examples, 64)
    synthetic = config.data.name == "clicks"
    one_pass = dataclasses.replace(one_pass, window=64, warm_examples=shared)
    changes = [
        ("name", f"{config.name}-tiny"),
        ("data.name", "clicks-tiny") if synthetic else ("data.train_size", 256),
        ("model.features", (2,)),
        ("model.towers", Towers(embedding_dim=2)),
        ("train.replicas", 2),
        ("train.seed_numbers", config.train.seed_numbers[:2]),
        ("train.batch_size", 32),
        ("train.one_pass", one_pass),
    ]
    return replaced(config, changes)

"""The second paper's rows and recipe, and its study on the embedded digits.

Not in the paper, hence ours: the batch size, the range of the weights (Glorot's), ReLU,
the schedule (none), the last 5,000 training images held out.
"""

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.methods.anti_distillation import AntiDistillation
from churn_jax.methods.base import Method
from churn_jax.methods.erm import ERM

COLUMNS = (
    "nll",
    "accuracy",
    "prediction_difference",
    "prediction_difference_2",
    "label_prediction_difference",
    "hamming_prediction_difference",
)


def dense(width: int) -> ModelConfig:
    """Two layers of one width, biases at zero, uniform weights."""
    return ModelConfig(name="mlp", features=(width, width), init="uniform")


def penalised(
    strength: float, members: int = 2, label_reduction: str = "sum", **settings
) -> AntiDistillation:
    """Components with the penalty; `settings` as of the method."""
    return AntiDistillation(
        members=members, strength=strength, label_reduction=label_reduction, **settings
    )


def plain_ensemble(members: int = 2) -> Method:
    """The same without it: their components see the same batches."""
    return penalised(0.0, members) if members > 1 else ERM()


def row(name: str, label: str, method: Method, place: str, **fields) -> MethodSpec:
    """A row from this place of the paper."""
    return MethodSpec(name, label, method, f"[anti-distillation] {place}", **fields)


def strength_rows(
    strengths: tuple[float, ...], place: str = "Table 1", **settings
) -> tuple[MethodSpec, ...]:
    """Table 1: two components without the penalty, then one row for each lambda."""
    rows = [row("baseline", "No AD", plain_ensemble(), "Table 1")]
    for strength in strengths:
        name, method = f"ad_{strength:g}", penalised(strength, **settings)
        label = f"AD, λ = {strength:g}"
        rows.append(row(name.replace(".", "_"), label, method, place))
    return tuple(rows)


def mnist_study(
    name: str,
    title: str,
    methods: tuple[MethodSpec, ...],
    *,
    baseline: str = "baseline",
    published: str = "",
) -> StudyConfig:
    """The paper's recipe at full size."""
    return StudyConfig(
        name=name,
        title=title,
        data=DataConfig(name="mnist", validation=5000),
        model=dense(1200),
        train=TrainConfig(
            replicas=20,
            epochs=150,
            batch_size=100,
            eval_every_epochs=10,
            optimizer=OptimizerConfig(
                name="adagrad",
                learning_rate=0.02,
                weight_decay=0.0,
                adagrad_accumulator=0.1,
            ),
        ),
        methods=methods,
        baseline=baseline,
        published=published,
        columns=COLUMNS,
    )


def ad_digits() -> StudyConfig:
    """Table 1 on the embedded digits: the paper's optimiser, few updates."""
    title = "Anti-distillation: does the penalty lower prediction differences?"
    label, mean = "AD, λ = 0.5, label loss averaged", penalised(0.5, 2, "mean")
    rows = (
        *strength_rows((0.02, 0.1, 0.5)),
        row("ad_0_5_mean", label, mean, "Table 1"),
    )
    return replaced(
        mnist_study("ad-digits", title, rows),
        [
            ("data.name", "digits"),
            ("data.train_size", 500),
            ("data.validation", 400),
            ("model", dense(400)),
            ("train.replicas", 10),
            ("train.epochs", 10),
            ("train.eval_every_epochs", 10),
            ("train.batch_size", 25),
        ],
    )

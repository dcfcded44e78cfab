"""What lowers churn most for a given cost: retraining, updating, activations.

Data are Fashion-MNIST of 14 x 14 pixels, CIFAR-10, AG News as bags of words and clicks;
the recipe is that of `churn_jax.studies.presets.elodi`. Every number of it is ours.
"""

import dataclasses
from typing import Any

from churn_jax.configuration.network import ModelConfig, Towers
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.configuration.study import DataConfig, StudyConfig, Update
from churn_jax.data.augment import Augmentation
from churn_jax.methods.base import Method, Ramp
from churn_jax.methods.churn_constraint import ChurnConstraint
from churn_jax.methods.codistillation import Codistillation
from churn_jax.methods.ensemble_distillation import EnsembleDistillation
from churn_jax.methods.erm import ERM, MinimumEntropy
from churn_jax.studies.presets.clicks import click_study
from churn_jax.studies.presets.elodi import Rows, Setting, cpu_study, joined

UNTREATED, SMOOTH = "[reproducibility] Eq. 2", "[smelu] SmeLU"
CHURN_KD, MPT = "[churn-distillation] Eq. 3", "[mpt] Margin-calibrated loss"
BATCH = 128  # of `cpu_study`

# The numbers after the colon of an activation: SmeLU's half-width, and how near the
# others are to ReLU. Five for each.
ACTIVATIONS = {
    "smelu": (0.1, 0.25, 0.5, 1.0, 2.0),
    "softplus": (1.0, 2.0, 4.0, 8.0, 16.0),
    "silu": (0.5, 1.0, 2.0, 4.0, 8.0),
    "gelu": (0.5, 1.0, 2.0, 4.0, 8.0),
}
LABELS = {"smelu": "SmeLU", "softplus": "Softplus", "silu": "SiLU", "gelu": "GELU"}


@dataclasses.dataclass(frozen=True)
class Task:
    """Data, a network, perhaps one of twice its size, and the length of training."""

    name: str
    title: str
    data: DataConfig
    model: ModelConfig
    wide: ModelConfig | None
    epochs: int
    augmentation: Augmentation

    def study(self, kind: str, title: str, rows: Rows, **fields) -> StudyConfig:
        """A study of these rows; `fields` as of `cpu_study`."""
        fields = {"replicas": 10, "baseline": "baseline"} | fields
        return cpu_study(
            f"cheapest-{kind}-{self.name}",
            f"{title}: {self.title}",
            rows,
            data=self.data,
            model=self.model,
            epochs=self.epochs,
            augmentation=self.augmentation,
            **fields,
        )


FASHION = Task(
    "fashion",
    "Fashion-MNIST, 14 x 14",
    DataConfig("fashion14.npz", train_size=40_000, validation=5000),
    ModelConfig("mlp", features=(256, 256)),
    ModelConfig("mlp", features=(384, 384)),
    epochs=20,
    augmentation=Augmentation(pad_crop=1, flip=True),
)
LENET = dataclasses.replace(
    FASHION,
    name="lenet",
    title=f"{FASHION.title}, LeNet5",
    model=ModelConfig("lenet5"),
    wide=None,
)
CIFAR = Task(
    "cifar",
    "CIFAR-10, LeNet5",
    DataConfig("cifar10.npz", train_size=10_000, validation=5000),
    LENET.model,
    None,
    epochs=30,
    augmentation=Augmentation(pad_crop=4, flip=True),
)
NEWS = Task(
    "news",
    "AG News, bags of words",
    DataConfig("ag_news_bags.npz", train_size=20_000, validation=5000),
    ModelConfig("mlp", features=(64, 64)),
    ModelConfig("mlp", features=(128, 128)),
    epochs=8,
    augmentation=Augmentation(drop=0.3),
)


def _named(kind: str, *values: float) -> str:
    """Name of a row with its settings, such as `smelu_0_5`."""
    words = (f"{value:g}".replace(".", "_") for value in values)
    return "_".join((kind, *words))


def _smooth_rows(model: ModelConfig) -> tuple[MethodSpec, ...]:
    """ReLU, and every smooth activation with each of its five numbers."""
    rows = [MethodSpec("baseline", "ReLU", ERM(), UNTREATED)]
    for kind, values in ACTIVATIONS.items():
        for value in values:
            own = dataclasses.replace(model, activation=f"{kind}:{value:g}")
            label = f"{LABELS[kind]} {value:g}"
            name = _named(kind, value)
            rows.append(MethodSpec(name, label, ERM(), SMOOTH, model=own))
    return tuple(rows)


def _smooth(task: Task) -> StudyConfig:
    return task.study("smooth", "Smooth activations", (_smooth_rows(task.model), ()))


def smooth_fashion() -> StudyConfig:
    """Churn and accuracy against the width of the corner, on images."""
    return _smooth(FASHION)


def smooth_news() -> StudyConfig:
    """The same on texts."""
    return _smooth(NEWS)


def _smooth_clicks(data: str, title: str) -> StudyConfig:
    """One tower, whose replicas differ by the order in the stream."""
    model = ModelConfig("click", features=(64, 32, 16), towers=Towers())
    ensemble = ERM(members=3, deploy="mean_probs")
    rows = (
        *_smooth_rows(model),
        MethodSpec("ensemble_3", "3-Ensemble, ReLU", ensemble, UNTREATED),
    )
    name = f"cheapest-smooth-{data.removesuffix('.npz')}"
    title = f"Smooth activations: {title}"
    return click_study(name, title, DataConfig(data, validation=0.1), rows)


def smooth_clicks() -> StudyConfig:
    """Prediction difference and log loss on made-up clicks, without any file."""
    return _smooth_clicks("clicks", "synthetic clicks")


def smooth_diabetes130() -> StudyConfig:
    """The same on 101,766 hospital stays, see `experiments/anti_distillation`."""
    return _smooth_clicks("diabetes130.npz", "Diabetes 130")


# Retraining: five settings for each method, chosen by `table.py` on validation
# examples. Numbers are ours, around those that the papers and earlier studies had.
RETRAINING: dict[str, tuple[tuple[float, ...], ...]] = {
    "entropy": ((0.05,), (0.1,), (0.2,), (0.3,), (0.5,)),  # alpha
    "codistill": ((0.5,), (1.0,), (2.0,), (4.0,), (8.0,)),  # beta
    "twin": ((0.5,), (1.0,), (2.0,), (4.0,), (8.0,)),  # beta
    "distil": (
        (0.5, 1.0),
        (0.9, 1.0),
        (0.9, 2.0),
        (0.7, 2.0),
        (0.9, 4.0),
    ),  # alpha, tau
    "neighbours": ((0.2, 10), (0.5, 10), (0.8, 10), (0.5, 50), (0.8, 50)),  # a, k
    "ema": ((0.9,), (0.98,), (0.99,), (0.995,), (0.999,)),  # decay
}
UPDATING: dict[str, tuple[tuple[float, ...], ...]] = {
    "bcwi": ((0.1,), (0.25,), (0.5,), (0.75,), (0.9,)),  # share of old weights
    "churn_kd": ((0.1,), (0.3,), (0.5,), (0.7,), (0.9,)),  # alpha
    "tuned_kd": ((0.1,), (0.3,), (0.5,), (0.7,), (0.9,)),  # alpha, from old weights
    "limit": ((0.01,), (0.02,), (0.05,), (0.1,), (0.2,)),  # nats
    "limit_right": ((0.005,), (0.01,), (0.02,), (0.05,), (0.1,)),  # nats
    "focal": ((0.1,), (0.3,), (0.5,), (0.7,), (0.9,)),  # alpha
    "elodi": ((0.3,), (0.5,), (0.7,), (0.8,), (0.9,)),  # alpha
    "smelu": tuple((value,) for value in ACTIVATIONS["smelu"]),
}
MARGINS = (1.0, 2.0, 4.0, 6.0, 8.0)

# Which of the five, by question, task and method.
CHOSEN: dict[str, dict[str, int]] = {
    "retrain-fashion": {
        **{"entropy": 3, "codistill": 0, "twin": 0, "distil": 0, "neighbours": 0},
        **{"ema": 0, "smelu": 4, "softplus": 1, "silu": 0, "gelu": 0},
    },
    "retrain-news": {
        **{"entropy": 4, "codistill": 4, "twin": 4, "distil": 4, "neighbours": 4},
        **{"ema": 3, "smelu": 4, "softplus": 0, "silu": 0, "gelu": 3},
    },
    "update-fashion": {
        **{"bcwi": 2, "churn_kd": 2, "tuned_kd": 3, "limit": 4, "limit_right": 4},
        **{"focal": 0, "elodi": 1, "smelu": 4},
    },
    "update-news": {
        **{"bcwi": 3, "churn_kd": 3, "tuned_kd": 2, "limit": 3, "limit_right": 1},
        **{"focal": 2, "elodi": 4, "smelu": 4},
    },
}
for name in ("retrain-lenet", "retrain-cifar"):  # as for the dense network
    CHOSEN[name] = CHOSEN["retrain-fashion"]


def _retraining_row(task: Task, kind: str, setting: tuple[float, ...]) -> MethodSpec:
    """One network is served; what it learns from is trained with other seeds."""
    size = task.data.train_size or 0
    ramp = Ramp("linear", float(task.epochs * (size // BATCH)))
    first, *more = setting
    words = ", ".join(f"{value:g}" for value in setting)
    name = _named(kind, *setting)

    def row(label: str, method: Method, equation: str, **fields: Any) -> MethodSpec:
        return MethodSpec(name, f"{label} {words}", method, equation, **fields)

    pair = Codistillation(beta=first, beta_ramp=ramp)
    if kind == "entropy":
        method = MinimumEntropy(alpha=first)
        return row("Entropy", method, "[reproducibility] Eq. 6")
    if kind == "codistill":
        return row("Co-distillation", pair, "[reproducibility] Eq. 9")
    if kind == "twin":
        method = dataclasses.replace(pair, member_sample="bootstrap")
        return row("Twin bootstrap", method, "[reproducibility] Eq. 9")
    if kind == "distil":
        method = EnsembleDistillation(alpha=first, temperature=more[0])
        equation = "[reproducibility] Table 2"
        return row("2-Ensemble distil.", method, equation, teacher="ensemble_2")
    if kind == "neighbours":
        near = Teaching(offline=True, neighbours=int(more[0]), uniform=0.1)
        method = EnsembleDistillation(alpha=first, temperature=1.0)
        equation = "[knn-smoothing] k-NN label smoothing"
        fields: dict[str, Any] = {"teacher": "baseline", "teaching": near}
        return row("k-NN smoothing", method, equation, **fields)
    return row("EMA", ERM(), UNTREATED, train=(("ema_decay", first),))


def _retraining(task: Task, grid: dict[str, tuple]) -> tuple[MethodSpec, ...]:
    """No treatment, an ensemble of two, and the rows of a grid."""
    pair = ERM(members=2, deploy="mean_probs")
    return (
        MethodSpec("baseline", "No treatment", ERM(), UNTREATED),
        MethodSpec("ensemble_2", "2-Ensemble", pair, "[reproducibility] Table 7"),
        *(
            _retraining_row(task, kind, setting)
            for kind, settings in grid.items()
            for setting in settings
        ),
    )


def chosen(question: str, task: Task, grid: dict[str, tuple]) -> dict[str, tuple]:
    """The grid with the one setting of every method that was chosen for the task."""
    found = CHOSEN[f"{question}-{task.name}"]
    return {kind: (five[found[kind]],) for kind, five in grid.items()}


def _retrain_choice(task: Task) -> StudyConfig:
    rows = _retraining(task, RETRAINING)
    return task.study("retrain-choice", "Settings", (rows, ()), replicas=3)


def _retrain(task: Task) -> StudyConfig:
    activations = {k: tuple((v,) for v in five) for k, five in ACTIVATIONS.items()}
    smooth = {row.name: row for row in _smooth_rows(task.model)}
    four = ERM(members=4, deploy="mean_probs")
    wide = MethodSpec("wide", "Twice the size", ERM(), UNTREATED, model=task.wide)
    rows = (
        *_retraining(task, chosen("retrain", task, RETRAINING)),
        MethodSpec("ensemble_4", "4-Ensemble", four, "[reproducibility] Table 7"),
        *([wide] if task.wide else []),
        *(
            smooth[_named(kind, *settings[0])]
            for kind, settings in chosen("retrain", task, activations).items()
        ),
    )
    return task.study("retrain", "Retraining", (rows, ()))


def retrain_choice_fashion() -> StudyConfig:
    """Five settings of every method that retrains, three runs."""
    return _retrain_choice(FASHION)


def retrain_choice_news() -> StudyConfig:
    """The same on texts."""
    return _retrain_choice(NEWS)


def retrain_fashion() -> StudyConfig:
    """Every method that retrains, at its chosen setting."""
    return _retrain(FASHION)


def retrain_news() -> StudyConfig:
    """The same on texts."""
    return _retrain(NEWS)


def retrain_lenet() -> StudyConfig:
    """The same with a convolutional network, at the dense network's settings."""
    return _retrain(LENET)


def retrain_cifar() -> StudyConfig:
    """The same on 10,000 photographs."""
    return _retrain(CIFAR)


def _updating_rows(s: Setting, kind: str, setting: tuple[float, ...]) -> Rows:
    """Rows that replace `old`, which has seen half of every class's examples."""
    (value,) = setting
    name, half = _named(kind, value), {"class_share": 0.5}
    if kind in ("elodi", "smelu"):  # both versions are treated
        if kind == "elodi":
            label, method = f"ELODI {value:g}", s.elodi(alpha=value, top_k=s.top_k)
            fields = ({"teacher": "old_ensemble"}, {"teacher": "ensemble"})
            equation = "[elodi] Eq. 8"
        else:
            label, method, equation = f"SmeLU {value:g}", ERM(), SMOOTH
            model = dataclasses.replace(s.new, activation=f"smelu:{value:g}")
            fields = ({"model": model},) * 2
        old = s.old_row(
            f"old_{name}",
            f"Old, {label}",
            method,
            equation=equation,
            **half,
            **fields[0],
        )
        new = s.row(name, label, method, equation=equation, **fields[1])
        return (old, new), (Update(old.name, name, label),)
    student = EnsembleDistillation(alpha=value, temperature=1.0)
    right = ChurnConstraint(limit=value, examples="right")
    taught: dict[str, Any] = {"teacher": "old"}
    named: dict[str, tuple[str, Method, str, dict[str, Any]]] = {
        "bcwi": ("BCWI", ERM(), "[bcwi] Sec. 3", {"start": "old", "keep": value}),
        "churn_kd": ("Churn distillation", student, CHURN_KD, taught),
        "tuned_kd": (
            *("Fine-tuned, churn distillation", student, CHURN_KD),
            taught | {"start": "old"},
        ),
        "limit": ("Churn limit", ChurnConstraint(limit=value), CHURN_KD, taught),
        "limit_right": ("Churn limit where right", right, CHURN_KD, taught),
        "focal": (
            "FD-KL",
            s.fd(alpha=value, temperature=1.0),
            "[elodi] Table 1",
            {"teaching": Teaching(old=("old",))},
        ),
    }
    label, method, equation, fields = named[kind]
    row = s.row(name, f"{label} {value:g}", method, equation=equation, **fields)
    return (row,), (Update("old", name, row.label, targeted=True),)


def _updating(task: Task, grid: dict[str, tuple]) -> Rows:
    """The same network on twice the data: from scratch, tuned, and treated."""
    s = Setting(task.model, task.model, members=4, top_k=3)
    half: dict[str, Any] = {"class_share": 0.5}
    rows = (
        s.old_row("old", "Old, half the data", ERM(), **half),
        s.row("none", "Retrained", ERM()),
        s.row("tuned", "Fine-tuned", ERM(), start="old"),
        s.old_row("old_ensemble", "Old, 4-Ensemble", s.ensemble(), **half),
        s.row("ensemble", "4-Ensemble", s.ensemble()),
        s.old_row("old_wide", "Old, twice the size", ERM(), model=task.wide, **half),
        s.row("wide", "Twice the size", ERM(), model=task.wide),
    )
    updates = (
        Update("old", "none", "Retrained"),
        Update("old", "tuned", "Fine-tuned", targeted=True),
        Update("old_ensemble", "ensemble", "4-Ensemble"),
        Update("old_wide", "wide", "Twice the size"),
    )
    treated = (
        _updating_rows(s, kind, setting)
        for kind, settings in grid.items()
        for setting in settings
    )
    return joined((rows, updates), *treated)


def _update_choice(task: Task) -> StudyConfig:
    rows = _updating(task, UPDATING)
    return task.study("update-choice", "Settings", rows, baseline="none", replicas=3)


def _update(task: Task) -> StudyConfig:
    rows = _updating(task, chosen("update", task, UPDATING))
    return task.study("update", "Updating", rows, baseline="none")


def update_choice_fashion() -> StudyConfig:
    """Five settings of every method that updates, three runs."""
    return _update_choice(FASHION)


def update_choice_news() -> StudyConfig:
    """The same on texts."""
    return _update_choice(NEWS)


def update_fashion() -> StudyConfig:
    """Every method that updates, at its chosen setting."""
    return _update(FASHION)


def update_news() -> StudyConfig:
    """The same on texts."""
    return _update(NEWS)


def soup_fashion() -> StudyConfig:
    """For `weights.py`: new runs from one old network, to be averaged.

    They differ by the order of the batches, and the old ones by nothing.
    """
    s = Setting(FASHION.model, FASHION.model)
    same = tuple((f"seeds.{seed}", "fixed") for seed in ("init", "order", "augment"))
    rows = (
        s.old_row("old", "Old, half the data", ERM(), class_share=0.5, train=same),
        s.row("tuned", "Fine-tuned", ERM(), start="old"),
    )
    updates = (Update("old", "tuned", "Fine-tuned", targeted=True),)
    return FASHION.study("soup", "Soups", (rows, updates), baseline="tuned")


def growth_fashion() -> StudyConfig:
    """Five new classes next to five old ones: a margin, with and without distillation.

    Half of the loss follows the old network and an independent new one, at the public
    code's temperature of 5.
    """
    s = Setting(FASHION.model, FASHION.model)
    rows = [
        s.old_row("old", "Old, half the classes", ERM(), classes=tuple(range(5))),
        s.row("none", "Retrained", ERM()),
    ]
    updates = [Update("old", "none", "Retrained")]
    for margin in (0.0, *MARGINS):
        mpt = s.fd(alpha=0.5, temperature=5.0, margin=margin)
        alone = s.fd(alpha=0.0, temperature=5.0, margin=margin)
        for kind, label, method, teacher in (
            ("mpt", "FD-KL, old and new", mpt, "none"),
            ("margin", "Retrained", alone, None),
        ):
            if not margin and not teacher:
                continue  # retrained
            name, label = _named(kind, margin), f"{label}, margin {margin:g}"
            fields: dict[str, Any] = {"teacher": teacher}
            fields |= {"teaching": Teaching(old=("old",)), "equation": MPT}
            rows.append(s.row(name, label, method, **fields))
            updates.append(Update("old", name, label, targeted=True))
    both = (tuple(rows), tuple(updates))
    title = "Classes that are added"
    return FASHION.study("growth", title, both, baseline="none", replicas=5)

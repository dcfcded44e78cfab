"""Model updates on a CPU: the fourth paper's questions on small images and texts.

The paper has no experiment on these sets. Its constants hold where they can: alpha
0.8, dropout 0.2; KD and FD as in the public code. Networks, lengths, rates, members
(four of its eight) and K (3 of ten classes) are ours. The rate and the length were
chosen by the validation error of no treatment, the ensemble and ELODI with two runs;
nothing was chosen by flips.
"""

import dataclasses
from typing import Any

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.configuration.study import DataConfig, StudyConfig, Update
from churn_jax.data.augment import Augmentation
from churn_jax.methods.erm import ERM
from churn_jax.methods.updating import BackwardCompatible
from churn_jax.studies.presets.elodi import (
    Rows,
    Setting,
    churn_distillation_rows,
    cpu_study,
    elodi_rows,
    guided,
    joined,
    main_rows,
    pair,
)
from experiments.elodi.rows import (
    architecture_rows,
    chain_rows,
    curve_rows,
    distance_rows,
    growth_rows,
    guide_rows,
    interpolation_rows,
    legacy_rows,
    offline_rows,
)

VALIDATION = 5000


def _setting(old: int, new: int) -> Setting:
    """One hidden layer each; rows that match logits have a rate of their own."""
    models = (ModelConfig("mlp", features=(width,)) for width in (old, new))
    faster = (("optimizer.learning_rate", 5e-3),)
    return Setting(*models, members=4, top_k=3, of_matching=faster)


# The headline's: widths, data and recipe; constants of its rivals (tau, alpha).
WIDE = _setting(256, 512)
MIDDLE = ModelConfig("mlp", features=(384,))
RECIPE: dict[str, Any] = {
    "data": DataConfig("fashion14.npz", train_size=40_000, validation=VALIDATION),
    "epochs": 20,
    "augmentation": Augmentation(pad_crop=1, flip=True),
}
CHOSEN = {"kd": (4.0, 0.5), "fd_kl": (1.0, 0.5), "fd_lm": (1.0, 0.1)}


def _study(name: str, title: str, rows: Rows, **fields: Any) -> StudyConfig:
    """In the headline's setting, where `fields` say nothing else."""
    own: dict[str, Any] = {"model": WIDE.new}
    return cpu_study(name, title, rows, **(own | RECIPE | fields))


def _update_rows(s: Setting) -> Rows:
    """Both networks untreated, as ensembles and by ELODI, and the closest rival.

    As in the paper, members, students and untreated networks are trained equally long.
    """
    return joined(pair(s), churn_distillation_rows(s), elodi_rows(s))


def headline() -> StudyConfig:
    """The claim of Table 1 on the embedded digits."""
    s = _setting(64, 128)
    return cpu_study(
        "headline-elodi",
        "ELODI, no treatment and ensembles on the digits",
        _update_rows(s),
        data=DataConfig(),
        model=s.new,
        epochs=100,
        augmentation=Augmentation(pad_crop=1),
    )


def headline_14x14() -> StudyConfig:
    """The claim of Table 1: 40,000 images of 14 x 14 pixels, dense 256 to dense 512.

    Crops of one pixel and mirrors, the same for a student and its teachers, are what
    lets students learn an ensemble's logits. Ours: m = 4, for time, and the widths,
    number of examples, length and students' rate, which were chosen on validation.
    """
    title = "ELODI, no treatment and ensembles on Fashion-MNIST of 14 x 14 pixels"
    return _study("headline-elodi-14x14", title, _update_rows(WIDE))


def rivals_14x14() -> StudyConfig:
    """Tables 1 and 10 in the headline's setting: every rival, at its best, too.

    KD, FD-KL and FD-LM have the constants of the public code, and those that
    `rivals_14x14_choice` found best. Towards the ensemble, KD and FD have the paper's
    temperatures, and ELODI's weight at temperature 1.
    """
    s = WIDE
    even = {"alpha": s.alpha, "temperature": 1.0}
    rows = joined(
        main_rows(s),
        *(_aimed(f"{kind}_best", *CHOSEN[kind]) for kind in CHOSEN),
        distance_rows(s),
        guided(s, "kd_ensemble_t1", "Ensemble w/ KD, tau = 1", s.kd(**even)),
        guided(s, "fd_ensemble_even", "Ensemble w/ FD, equal weight", s.fd(**even)),
    )
    title = "ELODI and its rivals on Fashion-MNIST of 14 x 14 pixels"
    return _study("headline-elodi-rivals-14x14", title, rows)


def rivals_14x14_choice() -> StudyConfig:
    """Five settings of each rival that aims at the old model, two runs.

    Chosen is the lowest NFR on the validation split among settings that err at most .3
    points more than no treatment there, which is what ELODI costs.
    """
    (old, none, *_), (untreated, _) = pair(WIDE)
    tempered = [(1.0, 0.5), (1.0, 0.7), (1.0, 0.9), (4.0, 0.5), (4.0, 0.9)]
    tried = {
        "kd": tempered,
        "fd_kl": tempered,
        "fd_lm": [(1.0, a) for a in (0.02, 0.1, 0.3, 0.5, 0.7)],
    }
    parts = [
        _aimed(f"{kind}_{number}", *constants)
        for kind, settings in tried.items()
        for number, constants in enumerate(settings)
    ]
    rows = joined(((old, none), (untreated,)), *parts)
    name = "headline-elodi-rivals-14x14-choice"
    return _study(name, "Constants of ELODI's rivals", rows, replicas=2)


def _aimed(name: str, temperature: float, alpha: float) -> Rows:
    """The new network by a method that aims at the old one, with constants."""
    s, kind = WIDE, name.rpartition("_")[0]
    constants: dict[str, Any] = {"alpha": alpha, "temperature": temperature}
    fields: dict[str, Any] = {"equation": "[elodi] Table 1"}
    if kind == "kd":
        method = s.kd(**constants)
        fields["teacher"] = "old"
    else:
        constants["divergence"] = kind.removeprefix("fd_").replace("lm", "logits")
        method = s.fd(**constants)
        fields["teaching"] = Teaching(old=("old",))
    scale = "" if kind == "fd_lm" else f"tau = {temperature:g}, "
    label = f"{kind.upper().replace('_', '-')}, {scale}alpha = {alpha:g}"
    row = s.row(name, label, method, **fields)
    return (row,), (Update("old", name, label, targeted=True),)


def fashion_more() -> StudyConfig:
    """Figure 6 and weight interpolation, in the headline's setting."""
    rows = joined(curve_rows(WIDE, (1, 2)), interpolation_rows(WIDE))
    return _study("elodi-fashion-more", "What ELODI depends on", rows)


def offline() -> StudyConfig:
    """Table 11: images are cropped anew in every epoch, so that it can matter."""
    title = "Online and offline teachers"
    return _study("elodi-offline", title, offline_rows(WIDE))


def growth() -> StudyConfig:
    """Table 3: the old models know half the classes, or half of every class."""
    return _study("elodi-growth", "Growing data", growth_rows(WIDE, 10))


def chain() -> StudyConfig:
    """Tables 5 and 7: three versions, with and without an untreated first one."""
    models = (WIDE.old, MIDDLE, WIDE.new)
    chain, (legacy, legacies) = chain_rows(WIDE, models), legacy_rows(WIDE, models)
    # The rows called none in Table 7 are those of ELODI in Table 5.
    same = {"none_v2": "elodi_v2", "none_v3": "elodi_v3"}
    kept = tuple(row for row in legacy if row.name not in same)
    renamed = tuple(
        dataclasses.replace(u, old=same.get(u.old, u.old), new=same.get(u.new, u.new))
        for u in legacies
    )
    rows = joined(chain, (kept, renamed))
    return _study("elodi-chain", "A chain of versions", rows, baseline="v1")


def architectures() -> StudyConfig:
    """Table 6: a dense network is replaced by networks of other families.

    3 runs of 10,000 images: convolutions take long on a CPU.
    """
    s = dataclasses.replace(WIDE, of_matching=())
    models = {
        "lenet5": ModelConfig("lenet5"),
        "vgg": ModelConfig("vgg_tiny"),
        "densenet": ModelConfig("densenet_tiny"),
    }
    return _study(
        "elodi-architectures",
        "Other architectures",
        architecture_rows(s, models),
        data=dataclasses.replace(RECIPE["data"], train_size=10_000),
        model=s.old,
        replicas=3,
        baseline="old",
    )


def guides() -> StudyConfig:
    """Table 8: guided by equal, mixed and all-different networks."""
    weak, strong = (
        [ModelConfig("mlp", features=features) for features in of]
        for of in (
            ((192,), (256,), (320,), (160, 160)),
            ((384,), (512,), (640,), (320, 320)),
        )
    )
    rows = guide_rows(WIDE, weak, strong, (weak[-1], strong[-1]))
    return _study("elodi-guides", "Guiding ensembles", rows)


# Section 3 and its figures.
OLD = ModelConfig("mlp", features=(32,))
NEW = ModelConfig("mlp", features=(128, 128))


def _whole(name: str, title: str, rows: Rows, replicas: int) -> StudyConfig:
    """On whole images; the first row is the baseline."""
    return cpu_study(
        name,
        f"{title} on Fashion-MNIST, 10,000 training examples",
        rows,
        data=DataConfig("fashion_mnist", train_size=10_000, validation=VALIDATION),
        model=OLD,
        replicas=replicas,
        baseline=rows[0][0].name,
    )


def displacement() -> StudyConfig:
    """Section 3: 64 networks each of two architectures."""
    rows = (
        MethodSpec("dense", "Dense 32", ERM(), "[elodi] Fig. 5", model=OLD),
        MethodSpec(
            "deep",
            "Dense 128, 128",
            ERM(),
            "[elodi] Fig. 5",
            model=NEW,
            train=(("seeds.base", 1),),
        ),
    )
    updates = (Update("dense", "deep"),)
    title = "64 networks of each kind"
    return _whole("elodi-displacement", title, (rows, updates), 64)


def figures() -> StudyConfig:
    """Figures 3, 8, 11 and 12 in small: two classes, two features, features.

    `experiments/elodi/displacement.py` draws them: of the row `two`; of `plane` with
    the features of `plane_space`, which is one network, as its seeds are fixed; of
    `features` with those of `space`.
    """
    factors = ("init", "order", "augment")
    fixed = tuple((f"seeds.{factor}", "fixed") for factor in factors)
    two, three = (2, 6), (2, 4, 6)  # pullovers and shirts; coats as well
    flat = ModelConfig("mlp", features=(32, 2))
    own: dict[str, Any] = {"model": OLD, "classes": two}
    rows = [MethodSpec("two", "Two classes", ERM(), "[elodi] Fig. 3", **own)]
    for row, model, classes, figure in (
        ("plane", flat, three, "[elodi] Fig. 11"),
        ("features", OLD, (), "[elodi] Fig. 12"),
    ):
        space = "plane_space" if row == "plane" else "space"
        what = {"equation": figure, "model": model, "classes": classes}
        old = Teaching(old=(space,))
        label = f"Compatible, {model.features[-1]} features"
        rows += [
            MethodSpec(space, f"The space of {row}", ERM(), train=fixed, **what),
            MethodSpec(row, label, BackwardCompatible(), teaching=old, **what),
        ]
    title = "Planes of logits and features"
    return _whole("elodi-figures", title, (tuple(rows), ()), 32)


def ag_news() -> StudyConfig:
    """Table 4 with bags of words: two trainings of one network, 20,000 news.

    `experiments/elodi/bags.py` writes the file. A share of the words is dropped in each
    update, the same for a student and its teachers; m = 4, length and share are ours,
    the share chosen on validation.
    """
    s = dataclasses.replace(_setting(64, 64), of_matching=())
    return cpu_study(
        "elodi-ag-news-bag",
        "AG News as bags of words, 20,000 training texts",
        _update_rows(s),
        data=DataConfig("ag_news_bags.npz", train_size=20_000, validation=VALIDATION),
        model=s.new,
        epochs=8,
        replicas=10,
        augmentation=Augmentation(drop=0.3),
    )

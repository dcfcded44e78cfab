"""Learning from deep ensembles: the third paper's tables, as large as in the paper.

The recipes are those of the released configurations, where PyTorch's SGD adds the decay
times w to the gradient, which is `decay="l2"` here. Not found, hence ours and named
here: how many runs, the whole recipe on TinyImageNet (CIFAR-100's), batch size and
learning rate of BatchEnsemble-8 (by the rule that all others follow: the teachers'
divided by M), how END^2 was adapted, how often the best epoch is looked for, the grids
of Tables 6 and 7. The paper validates on the last 5,000 of CIFAR's training images;
here they are drawn, the same for everybody, so that any part of the rest is a random
one. TinyImageNet's validation split is the paper's.

Table 3, Figure 8 and Figure 9 are these studies' networks on other images, as
`experiments.diversity.analyses` measures them. Table 2 is the CIFAR-100 studies with
smaller students, Tables 8 and 9 are Tables 1 and 2 without calibration.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from churn_jax.configuration.network import ModelConfig, Sharing
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.data.augment import Augmentation
from churn_jax.methods.ensemble_distillation import EnsembleDistributionDistillation
from churn_jax.studies.presets.diversity import COLUMNS, Recipe, main_rows, teacher_rows
from experiments.variants import variant

CIFAR10 = Recipe(
    members=4,
    batch_size=128,
    learning_rate=0.1,
    epochs=250,
    teacher_batch_size=512,
    teacher_learning_rate=0.4,
    teacher_epochs=200,
    weight_decay=4e-4,
    temperature=4.0,
)
CIFAR10_8 = dataclasses.replace(CIFAR10, members=8, batch_size=64, learning_rate=0.05)
CIFAR100 = Recipe(
    members=4,
    batch_size=64,
    learning_rate=0.05,
    epochs=300,
    teacher_batch_size=256,
    teacher_learning_rate=0.2,
    teacher_epochs=300,
    weight_decay=5e-4,
    temperature=1.0,
)

# Ours.
REPLICAS = 3
MIMO = dataclasses.replace(CIFAR100, members=3)  # with BatchEnsemble-4's batch and rate
TEMPERATURES = (1.0, 2.0, 4.0, 8.0)  # of Tables 6 and 7
END2_TEMPERATURE = 10.0
END2_ANNEAL_EPOCHS = 125  # half of the training, as long as the rate is flat

VALIDATION = 5000
WIDE = "wide_resnet28_10"
_AUGMENTATION = {
    "cifar10": Augmentation(pad_crop=4, flip=True),
    "cifar100": Augmentation(pad_crop=4, flip=True),
    "tiny_imagenet": Augmentation(pad_crop=8, flip=True),
}


EQ1, EQ4 = "[diversity] Eq. 1", "[diversity] Eq. 4"


def further_rows(recipe: Recipe, *, anneal_steps: float) -> tuple[MethodSpec, ...]:
    """The appendices' rows: other directions, and one plain student.

    Directions of `transfer_ods` come from the last of M + 1 networks, which is no
    student's teacher. How a mean of several teachers is tempered is not in the paper:
    `averaged` tempers the mean probabilities, `averaged_tempered` averages the tempered
    ones.
    """
    name = f"BE-{recipe.members} + KD"
    taught: dict[str, Any] = {"teacher": "teachers"}
    alone: dict[str, Any] = {"separate": True}  # one network, which shares nothing
    teachers, _ = teacher_rows(dataclasses.replace(recipe, members=recipe.members + 1))
    end2 = EnsembleDistributionDistillation(anneal_steps=anneal_steps)
    other, alike = recipe.student("ods", external_teachers=1), "One network + KD of the"
    plus = {"teacher": "teachers_plus"}
    students: Sequence[tuple[str, str, Any, str, dict[str, Any]]] = (
        ("adversarial", f"{name} + adversarial", recipe.student("adversarial"),
         "[diversity] Appendix A.2", {}),
        ("two_sided", f"{name} + two-sided", recipe.student("two_sided"),
         "[latent-be] Sec. 3", {}),
        ("transfer_ods", f"{name} + ODS of another network", other, EQ4, plus),
        ("averaged", f"{alike} mean", recipe.averaged(), EQ1, alone),
        ("averaged_tempered", f"{alike} mean, tempered before",
         recipe.averaged(average="tempered_probs"), EQ1, alone),
        ("averaged_ods", f"{alike} mean + ODS", recipe.averaged("ods"), EQ4, alone),
        ("end2", "One network, END²", end2, "[diversity] Table 5", alone),
    )  # fmt: skip
    rows = [
        MethodSpec(row, label, method, equation, **(taught | fields))
        for row, label, method, equation, fields in students
    ]
    rows.insert(2, dataclasses.replace(teachers, name="teachers_plus"))
    return tuple(rows)


def _study(
    name: str,
    title: str,
    methods: tuple[MethodSpec, ...],
    *,
    recipe: Recipe = CIFAR10,
    data: str = "cifar10",
    model: str = "resnet32",
    sharing: Sharing = Sharing(),
    baseline: str = "scratch",
    published: str = "",
) -> StudyConfig:
    validation = None if data == "tiny_imagenet" else VALIDATION
    return StudyConfig(
        name=name,
        title=title,
        data=DataConfig(name=data, validation=validation),
        model=ModelConfig(name=model, sharing=sharing),
        train=recipe.train(replicas=REPLICAS, augmentation=_AUGMENTATION[data]),
        methods=methods,
        baseline=baseline,
        published=published,
        columns=COLUMNS,
    )


def _wide(name: str, title: str, rows: tuple[MethodSpec, ...], **fields) -> StudyConfig:
    """WRN-28-10 on CIFAR-100, where `fields` say nothing else."""
    own: dict[str, Any] = {"recipe": CIFAR100, "data": "cifar100", "model": WIDE}
    return _study(name, title, rows, **(own | fields))


def cifar10_be4() -> StudyConfig:
    """Table 1, CIFAR-10: ResNet-32, DE-4 to BatchEnsemble-4."""
    title = "Learning from ensembles on CIFAR-10: ResNet-32, four members"
    return _study("dm-cifar10-be4", title, main_rows(CIFAR10))


def cifar10_more() -> StudyConfig:
    """Appendix A.2 and Figure 5 (c, d): other directions, ResNet-32 on CIFAR-10.

    Also two plain students of the teachers' mean, the usual distillation of Section 1,
    which temper it in the two ways that there are.
    """
    compared = ("teachers", "scratch", "kd", "gaussian", "ods")
    added = (
        *("teachers_plus", "adversarial", "transfer_ods"),
        *("averaged", "averaged_tempered"),
    )
    rows = (*main_rows(CIFAR10), *further_rows(CIFAR10, anneal_steps=1.0))
    kept = tuple(row for row in rows if row.name in compared + added)
    title = "Learning from ensembles on CIFAR-10: ResNet-32, other directions"
    return _study("dm-cifar10-more", title, kept)


def cifar10_be8() -> StudyConfig:
    """Table 1, CIFAR-10: ResNet-32, DE-8 to BatchEnsemble-8."""
    title = "Learning from ensembles on CIFAR-10: ResNet-32, eight members"
    return _study("dm-cifar10-be8", title, main_rows(CIFAR10_8), recipe=CIFAR10_8)


def cifar100() -> StudyConfig:
    """Table 1, CIFAR-100: WRN-28-10, DE-4 to BatchEnsemble-4."""
    title = "Learning from ensembles on CIFAR-100: WRN-28-10"
    published = "experiments/diversity/published.csv:table1/cifar100"
    return _wide("dm-cifar100", title, main_rows(CIFAR100), published=published)


def _smaller(name: str, title: str, width: int, **fields) -> StudyConfig:
    """Table 2: students are narrower than their teachers, which are WRN-28-10."""
    rows = main_rows(CIFAR100, teacher=ModelConfig(name=WIDE))
    title = f"Learning from ensembles on {title}: WRN-28-{width} from WRN-28-10"
    return _wide(name, title, rows, model=f"wide_resnet28_{width}", **fields)


def cifar100_wrn28_2() -> StudyConfig:
    """Table 2, CIFAR-100: WRN-28-2 students of WRN-28-10 teachers."""
    return _smaller("dm-cifar100-wrn28-2", "CIFAR-100", 2)


def cifar100_wrn28_5() -> StudyConfig:
    """Table 2, CIFAR-100: WRN-28-5 students of WRN-28-10 teachers."""
    return _smaller("dm-cifar100-wrn28-5", "CIFAR-100", 5)


def tinyimagenet() -> StudyConfig:
    """Table 2, TinyImageNet: the same; the recipe is CIFAR-100's."""
    return _smaller("dm-tinyimagenet", "TinyImageNet", 5, data="tiny_imagenet")


def mimo() -> StudyConfig:
    """Table 4: DE-3 to MIMO-3, WRN-28-10 on CIFAR-100; no ConfODS there."""
    rows = main_rows(MIMO, short="MIMO")
    kept = tuple(row for row in rows if row.name != "conf_ods")
    title = "Learning from ensembles on CIFAR-100: MIMO"
    return _wide("dm-mimo", title, kept, recipe=MIMO, sharing=Sharing(kind="mimo"))


def end2_cifar10() -> StudyConfig:
    """Table 5: END^2 and ConfODS by the number of teachers, ResNet-32 on CIFAR-10.

    As in the paper ConfODS has 4 and 8 teachers only.
    """
    steps = (50_000 - VALIDATION) // CIFAR10.batch_size * END2_ANNEAL_EPOCHS
    end2 = EnsembleDistributionDistillation(
        temperature=END2_TEMPERATURE, anneal_steps=float(steps)
    )
    rows = []
    for members in (4, 8, 16, 32):
        recipe = dataclasses.replace(CIFAR10, members=members)
        teachers, _ = teacher_rows(recipe)
        rows += [
            dataclasses.replace(teachers, name=f"teachers_{members}"),
            MethodSpec(
                f"end2_{members}",
                f"END² from DE-{members}",
                end2,
                "[diversity] Table 5",
                teacher=f"teachers_{members}",
                separate=True,
            ),
        ]
    for recipe in (CIFAR10, CIFAR10_8):
        (student,) = (row for row in main_rows(recipe) if row.name == "conf_ods")
        own = (
            ("batch_size", recipe.batch_size),
            ("optimizer.learning_rate", recipe.learning_rate),
        )
        rows.append(
            dataclasses.replace(
                student,
                name=f"conf_ods_{recipe.members}",
                teacher=f"teachers_{recipe.members}",
                train=() if recipe is CIFAR10 else own,
            )
        )
    title = "END² and ConfODS on CIFAR-10 with ResNet-32"
    return _study("dm-end2-cifar10", title, tuple(rows), baseline="end2_4")


def _grid(recipe: Recipe) -> tuple[MethodSpec, ...]:
    """One row of plain distillation per temperature, whose alpha is swept."""
    rows = main_rows(recipe)
    (plain,) = (row for row in rows if row.name == "kd")
    return (
        *(row for row in rows if row.name in ("teachers", "scratch")),
        *(
            variant(
                *(plain, f"tau{tau:g}", f"τ = {tau:g}"),
                method=dataclasses.replace(recipe, temperature=tau).student(),
            )
            for tau in TEMPERATURES
        ),
    )


def table6() -> StudyConfig:
    """Table 6: alpha and tau on CIFAR-10 with ResNet-32, on the validation split.

    `churn-jax sweep experiments/diversity/presets.py:table6
    kd_tau1.alpha kd_tau2.alpha kd_tau4.alpha kd_tau8.alpha
    --values 0.1,0.5,0.9,1 --criterion accuracy` is the grid, with one set of teachers.
    """
    title = "Distillation of ensembles on CIFAR-10: alpha and tau"
    return _study("dm-table6", title, _grid(CIFAR10))


def table7() -> StudyConfig:
    """Table 7: alpha and tau on CIFAR-100 with WRN-28-10, swept as in `dm-table6`."""
    title = "Distillation of ensembles on CIFAR-100: alpha and tau"
    return _wide("dm-table7", title, _grid(CIFAR100))

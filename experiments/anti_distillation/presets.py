"""Anti-distillation on MNIST: the paper's Tables 1 and 2, and forms a CPU can train.

The paper's: two components of 1200 x 1200, biases at zero, uniform weights, 150 epochs
of AdaGrad at 0.02 with accumulators at 0.1, the penalty on each of the 10 logits, mean
of the components' probabilities, 20 runs. Not in the paper, hence ours: the batch size,
the range of the weights (Glorot's), ReLU, the schedule (none), the last 5,000 training
images held out. The CPU forms have the same optimiser on narrower networks and
fewer images; every strength in them but the paper's is ours.

The paper does not say whether its label loss is summed or averaged over a batch. Here
it is summed (`AntiDistillation.label_reduction`), a reading of ours: averaged, the
paper's lambdas swamp it, and accuracy falls where the paper's stays. Those that end
in `_mean` take the other reading, with the same lambdas.

"No AD" is the same ensemble with lambda 0: its components see the same batches, as
those with the penalty do.
"""

import dataclasses
import math

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.methods.erm import ERM
from churn_jax.studies.presets.anti_distillation import (
    ad_digits,
    dense,
    mnist_study,
    penalised,
    plain_ensemble,
    row,
    strength_rows,
)
from experiments.variants import variant

# Tables 1 and 2.
STRENGTHS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
STRENGTH = 0.5  # of Table 2
SIZES = (2, 4, 6, 8)

# The CPU forms.
WIDTH = 128
EPOCHS = 30
TRAIN_SIZE = 10_000
# Where only one is trained: the best validation accuracy of 0.01 to 10, by tens.
MNIST_STRENGTH = 1.0
# Penalties differ in size, so each has a strength of its own, of the best validation
# accuracy; differences of logits learn nothing at any strength tried, 0.01 and up.
LOSSES = {
    "covariance": (1.0, "Covariance", "Eq. 3"),
    "residual_correlation": (1.0, "Residual correlation", "Eq. 4"),
    "difference": (0.01, "Squared difference", "Eq. 7"),
    "inverse_difference": (10.0, "Inverse difference", "Sec. 4"),
    "cross_entropy_difference": (1.0, "Cross-entropy between components", "Sec. 4"),
}
# One training algorithm per component; Adam at a twentieth of AdaGrad's rate, 0.001.
ALGORITHMS = (("adagrad", "adam"), (1.0, 0.05))
RUNNING = 0.9  # decay of the moments across mini-batches


def _sizes(
    sizes: tuple[int, ...], strength: float, **settings
) -> tuple[MethodSpec, ...]:
    """Table 2: J components without the penalty and with it."""
    rows = []
    for size in sizes:
        label, plain = f"J = {size}", plain_ensemble(size)
        rows.append(row(f"ensemble_{size}", f"No AD, {label}", plain, "Table 2"))
        if size > 1:
            method = penalised(strength, size, **settings)
            rows.append(row(f"ad_{size}", f"AD, {label}", method, "Table 2"))
    return tuple(rows)


def _study(
    form: str, what: str, rows: tuple[MethodSpec, ...], table: str = ""
) -> StudyConfig:
    """A study like this table of the paper, if it is like one."""
    return mnist_study(
        f"ad-{form}",
        f"Anti-distillation on MNIST: {what}",
        rows,
        baseline="ensemble_2" if table == "table2" else "baseline",
        published=table
        and f"experiments/anti_distillation/published.csv:{table}/mnist",
    )


def _small(*study) -> StudyConfig:
    """The same on fewer images, with narrower networks and fewer epochs."""
    whole = _study(*study)
    return replaced(
        whole,
        [
            ("title", f"{whole.title}, {TRAIN_SIZE:,} training examples"),
            ("data.train_size", TRAIN_SIZE),
            ("model", dense(WIDTH)),
            ("train.epochs", EPOCHS),
            ("train.eval_every_epochs", EPOCHS // 4),
        ],
    )


_STRENGTH, _SIZE = "its strength", "the number of components"
_AVERAGED = "label loss averaged"


def table1() -> StudyConfig:
    """Table 1, as large as in the paper: for an accelerator."""
    return _study("table1", _STRENGTH, strength_rows(STRENGTHS), "table1")


def table1_mean() -> StudyConfig:
    """Table 1 with the label loss averaged over the batch."""
    rows = strength_rows(STRENGTHS, label_reduction="mean")
    return _study("table1-mean", f"{_STRENGTH}, {_AVERAGED}", rows, "table1")


def table1_covariance() -> StudyConfig:
    """Section 5: "similar behavior to Table 1 was obtained with covariance loss".

    The strengths are not given; these are Table 1's.
    """
    rows = strength_rows(STRENGTHS, "Sec. 5", penalty="covariance")
    return _study("table1-covariance", "covariance", rows, "table1")


def _algorithms(strength: float) -> tuple[MethodSpec, ...]:
    """Section 2: components that differ in "even training algorithm"."""
    algorithms, rates = ALGORITHMS
    own = (
        ("optimizer.member_algorithms", algorithms),
        ("optimizer.member_rates", rates),
    )
    words = "AdaGrad and Adam"
    return (
        row("algorithms", f"No AD, {words}", plain_ensemble(), "Sec. 2", train=own),
        row("ad_algorithms", f"AD, {words}", penalised(strength), "Sec. 2", train=own),
    )


def table1_algorithms() -> StudyConfig:
    """Section 2: one training algorithm per component, at Table 1's size.

    The paper names none and prints no number: algorithms, rates and lambda are ours.
    """
    rows = (*strength_rows((STRENGTH,)), *_algorithms(STRENGTH))
    return _study("table1-algorithms", "one training algorithm per component", rows)


def table1_probabilities() -> StudyConfig:
    """Section 5: "applying AD loss on probabilities did not improve PD".

    The strengths are not given; these are Table 1's.
    """
    rows = strength_rows(STRENGTHS, "Sec. 5", on="probabilities")
    return _study("table1-probabilities", "on probabilities", rows, "table1")


def table2() -> StudyConfig:
    """Table 2, as large as in the paper: for an accelerator."""
    return _study("table2", _SIZE, _sizes(SIZES, STRENGTH), "table2")


def table2_mean() -> StudyConfig:
    """Table 2 with the label loss averaged over the batch."""
    rows = _sizes(SIZES, STRENGTH, label_reduction="mean")
    return _study("table2-mean", f"{_SIZE}, {_AVERAGED}", rows, "table2")


def mnist() -> StudyConfig:
    """Table 1 for a CPU."""
    return _small("mnist", _STRENGTH, strength_rows((*STRENGTHS, 5.0)), "table1")


def mnist_mean() -> StudyConfig:
    """Table 1 for a CPU, with the label loss averaged over the batch."""
    rows = strength_rows((1e-4, 1e-3, 1e-2, *STRENGTHS), label_reduction="mean")
    return _small("mnist-mean", f"{_STRENGTH}, {_AVERAGED}", rows, "table1")


def mnist_size() -> StudyConfig:
    """Table 2 for a CPU, with a single network and a wide one next to the ensembles."""
    rows = (*_sizes((1, 2, 4, 6, 8), MNIST_STRENGTH), _wide())
    return _small("mnist-size", _SIZE, rows, "table2")


def _wide() -> MethodSpec:
    """One network with the parameters of two components.

    Of width W it has `W^2 + 796 W + 10`, for 784 pixels and 10 classes.
    """
    wanted = 2 * (WIDTH * (WIDTH + 796) + 10) - 10
    model = dense(round(math.sqrt(398**2 + wanted) - 398))
    return row("wide", "One network, parameters of J = 2", ERM(), "Sec. 1", model=model)


def mnist_losses() -> StudyConfig:
    """Sections 4 and 5: other penalties, and the correlation of probabilities."""
    plain = penalised(MNIST_STRENGTH)
    # Of two components Gram-Schmidt changes nothing.
    four = penalised(MNIST_STRENGTH, 4)
    running = dataclasses.replace(plain, running=RUNNING)
    absolute = penalised(1.0, penalty="difference", order=1)
    probabilities = penalised(100.0, on="probabilities")
    bounded = penalised(10.0, penalty="difference", on="probabilities")
    rows = (
        row("baseline", "No AD", plain_ensemble(), "Table 1"),
        row("ad", "Correlation", plain, "Eq. 5"),
        *(
            row(name, label, penalised(strength, penalty=name), place)
            for name, (strength, label, place) in LOSSES.items()
        ),
        row("ensemble_4", "No AD, J = 4", plain_ensemble(4), "Sec. 4"),
        row("ad_4", "Correlation, J = 4", four, "Sec. 4"),
        row(
            "orthogonalized",
            "Gram-Schmidt, correlation, J = 4",
            dataclasses.replace(four, penalty="orthogonalized"),
            "Sec. 4",
        ),
        row("running", "Correlation, running moments", running, "Sec. 4"),
        row("difference_l1", "Absolute difference", absolute, "Sec. 4"),
        row(
            "difference_probabilities",
            "Squared difference of probabilities",
            bounded,
            "Sec. 4",
        ),
        row("probabilities", "Correlation of probabilities", probabilities, "Sec. 5"),
        *_algorithms(MNIST_STRENGTH),
        _wide(),
    )
    return _small("mnist-losses", "other penalties", rows)


def mnist_init() -> StudyConfig:
    """Section 3: what replicas differ in, and whether the penalty helps against it.

    The components of one replica always start differently. With the same initial
    weights in all replicas they differ by the order of the examples alone.
    """
    method = penalised(MNIST_STRENGTH)
    rows = [
        row("baseline", "No AD", plain_ensemble(), "Sec. 3"),
        row("ad", "AD", method, "Sec. 3"),
    ]
    rows += [
        variant(row, cause, f"same {cause}", train=((f"seeds.{cause}", "fixed"),))
        for cause in ("init", "order")
        for row in rows
    ]
    return _small("mnist-init", "what replicas differ in", tuple(rows))


def headline_14x14() -> StudyConfig:
    """Table 1 in minutes: the paper's optimiser, wide networks, few updates.

    `churn-jax data mnist --shrink 2 --out mnist14.npz` writes the images.
    """
    return replaced(
        ad_digits(),
        [
            ("name", "headline-anti-distillation-14x14"),
            ("data.name", "mnist14.npz"),
            ("data.train_size", TRAIN_SIZE),
            ("data.validation", 5000),
            ("model", dense(800)),
            ("train.epochs", 5),
            ("train.eval_every_epochs", 5),
            ("train.batch_size", 100),
        ],
    )


def size_14x14() -> StudyConfig:
    """Table 2 in the same setting, lambda as in the paper."""
    rows = _sizes((1, 2, 4, 8), STRENGTH)
    study = dataclasses.replace(headline_14x14(), methods=rows, baseline="ensemble_2")
    title = f"Anti-distillation: {_SIZE}"
    name = "headline-anti-distillation-size-14x14"
    return replaced(study, [("name", name), ("title", title)])


def length_14x14() -> StudyConfig:
    """Where the gain of Table 1 ends: the penalty against epochs and width, 5 runs.

    `experiments/anti_distillation/length.py` compares every row with the one without
    the penalty that is trained as long and as wide.
    """
    methods = {"plain": ("No AD", plain_ensemble()), "ad": ("AD", penalised(STRENGTH))}
    rows = tuple(
        row(
            f"{name}_{width}_{epochs}",
            f"{label}, width {width}, {epochs} epochs",
            method,
            "Table 1",
            model=dense(width),
            train=(("epochs", epochs), ("eval_every_epochs", epochs)),
        )
        for width in (128, 400, 800)
        for epochs in (3, 5, 10, 30)
        for name, (label, method) in methods.items()
    )
    study = dataclasses.replace(headline_14x14(), methods=rows, baseline=rows[0].name)
    name = "headline-anti-distillation-length-14x14"
    title = f"Anti-distillation: {_STRENGTH}, against epochs and width"
    changes = [("name", name), ("title", title), ("train.replicas", 5)]
    return replaced(study, changes)


def headline() -> StudyConfig:
    """The same on the embedded digits, which is `ad-digits`."""
    return replaced(ad_digits(), [("name", "headline-anti-distillation")])

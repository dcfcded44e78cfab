"""Table 3 of anti-distillation: clicks, learned in one pass.

Names say what differs from `churn_jax.studies.presets.clicks`:

* `summed`: the label loss is summed over the mini-batch; lambdas are those of the
  paper, and weigh one part in 256;
* `init`: replicas differ by their initial weights, the order is common;
* `warm`: replicas share weights and order over the first half of the stream, and differ
  by order after it, as models that are trained on from a converged one.
"""

import dataclasses

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import Seeds
from churn_jax.methods.anti_distillation import AntiDistillation
from churn_jax.studies.presets.clicks import click_study, penalised_row, plain_row

TABLE = "experiments/anti_distillation/published.csv:table3/clicks"


def _table3_rows() -> tuple[MethodSpec, ...]:
    """The paper's rows, and what s does without a penalty, which it leaves out."""
    scales, weights = (1.0, 5.0, 10.0), (0.5, 1.0, 5.0)
    return (
        plain_row(),
        *(
            penalised_row("correlation", weight, s)
            for s in scales
            for weight in weights
        ),
        penalised_row("covariance", 1.0),
        penalised_row("difference", 1.0),
        *(plain_row(s) for s in scales[1:]),
    )


def _table3(name: str, title: str, data: str, share: float, window: int) -> StudyConfig:
    return click_study(
        name,
        f"Anti-distillation, Table 3: {title}",
        DataConfig(data, validation=share),
        _table3_rows(),
        window=window,
        published=TABLE,
    )


def table3() -> StudyConfig:
    """The paper's Table 3; `--data FILE.npz` takes clicks of your own."""
    return _table3("ad-table3", "a click model in one pass", "clicks.npz", 0.0, 8192)


def adult() -> StudyConfig:
    """Census income of 48,842 people, in the order of the files."""
    title = "Adult, income above 50,000 dollars"
    return _table3("ad-table3-adult", title, "adult.npz", 0.1, 4096)


def diabetes130() -> StudyConfig:
    """101,766 hospital stays in the order of their ids, held out by patient."""
    title = "Diabetes 130, readmitted within 30 days"
    return _table3("ad-table3-diabetes130", title, "diabetes130.npz", 0.1, 8192)


def kddcup99() -> StudyConfig:
    """Connections of the 10 % file, in its order."""
    title = "KDD Cup 1999, a connection that is an attack"
    return _table3("ad-table3-kddcup99", title, "kddcup99.npz", 0.1, 8192)


def diabetes130_summed() -> StudyConfig:
    """The label loss summed."""
    return _summed(diabetes130())


def adult_summed() -> StudyConfig:
    """The label loss summed."""
    return _summed(adult())


def _summed(config: StudyConfig) -> StudyConfig:
    """Lambda weighs against the label loss of the whole batch."""

    def row(spec: MethodSpec) -> MethodSpec:
        if not isinstance(spec.method, AntiDistillation):
            return spec
        method = dataclasses.replace(spec.method, label_reduction="sum")
        return dataclasses.replace(spec, method=method)

    rows = tuple(map(row, config.methods))
    words = "label loss summed over the batch"
    return _changed(config, "summed", words, [("methods", rows)])


def diabetes130_summed_init() -> StudyConfig:
    """Two models that differ in their initial weights and see the same order."""
    # A common window would be one of common weights.
    seeds = Seeds(init="varied", order="fixed")
    changes = [("train.one_pass.warm_examples", 0), ("train.seeds", seeds)]
    return _changed(diabetes130_summed(), "init", "other initial weights", changes)


def diabetes130_summed_warm() -> StudyConfig:
    """Two models that are one for half the stream, and differ by order after it."""
    changes = [("train.one_pass.warm_examples", 0), ("train.one_pass.warm_share", 0.5)]
    return _changed(diabetes130_summed(), "warm", "from a converged model", changes)


def _changed(config: StudyConfig, form: str, words: str, changes) -> StudyConfig:
    named = [("name", f"{config.name}-{form}"), ("title", f"{config.title}; {words}")]
    return replaced(config, [*named, *changes])

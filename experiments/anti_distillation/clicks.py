"""Table 3 of anti-distillation: streams of clicks, for `churn-jax stream`.

DOC
"""

import dataclasses

from churn_jax.configuration.streams import (
    StreamData,
    StreamSpec,
    StreamStudyConfig,
    TowerConfig,
)
from churn_jax.studies.streams.presets import (
    penalised_row,
    plain_row,
    stream_training,
)

TABLE = "experiments/anti_distillation/published.csv:table3/clicks"
_PREPARE = (
    "python experiments/anti_distillation/prepare.py {name} RAW OUT.csv writes it from "
    "the files that the UCI repository hands out"
)


def _table3_rows() -> tuple[StreamSpec, ...]:
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


def table3() -> StreamStudyConfig:
    """The paper's Table 3 on a table of the user's own."""
    return StreamStudyConfig(
        name="ad-table3",
        title="Anti-distillation, Table 3: a click model in one pass over a stream",
        data=StreamData(
            source="",
            hint="a .csv, .csv.gz or .parquet file in time order, with --schema FILE."
            "toml that says what its columns mean; --data synthetic --examples N needs "
            "no file",
        ),
        model=TowerConfig(),
        train=stream_training(replicas=10, window=8192),
        methods=_table3_rows(),
        published=TABLE,
    )


def _named(name: str, what: str, window: int) -> StreamStudyConfig:
    study = table3()
    return dataclasses.replace(
        study,
        name=f"ad-table3-{name}",
        title=f"Anti-distillation, Table 3: {what}",
        data=StreamData(
            source="", schema=name, holdout=0.1, hint=_PREPARE.format(name=name)
        ),
        train=stream_training(replicas=10, window=window),
    )


def adult() -> StreamStudyConfig:
    """Census income of 48,842 people, in the order of the files."""
    return _named("adult", "Adult, income above 50,000 dollars", 4096)


def diabetes130() -> StreamStudyConfig:
    """101,766 hospital stays in the order of their ids, held out by patient."""
    return _named("diabetes130", "Diabetes 130, readmitted within 30 days", 8192)


def kddcup99() -> StreamStudyConfig:
    """Connections of the 10 % file, in its order."""
    return _named("kddcup99", "KDD Cup 1999, a connection that is an attack", 8192)

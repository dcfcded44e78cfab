"""A small study of versions of a model, which the tests of this folder share."""

import dataclasses
import json
import shutil

from churn_compare.store import load_predictions
from churn_jax.configuration.rows import Teaching
from churn_jax.methods import ELODI, ERM, EnsembleDistillation, MinimumEntropy
from churn_jax.studies import (
    DataConfig,
    MethodSpec,
    ModelConfig,
    StudyConfig,
    Update,
    run_study,
)
from churn_jax.training import OptimizerConfig, TrainConfig
from tests.training.test_loggers import Recorder

CLASSES = (0, 2, 3, 5, 8)
BY_PAIR_AND_FEW = Teaching(old=("few",), calibrated=True)
LOGGED = Recorder()


def study_of(*rows, data, model, **train):
    """A study of two replicas; the first row is the baseline."""
    config = TrainConfig(**{"replicas": 2} | train)
    return StudyConfig("small", "Small", data, model, config, rows, rows[0].name)


def small_study(*, learning_rate=0.1, epochs=1, **data_options):
    """A baseline, a regularised method, a pair and its student: seconds in all."""
    return study_of(
        MethodSpec("baseline", "Baseline", ERM()),
        MethodSpec("entropy", "Entropy", MinimumEntropy(alpha=0.1)),
        MethodSpec("pair", "Pair", ERM(members=2, deploy="mean_probs")),
        MethodSpec("student", "Student", EnsembleDistillation(), teacher="pair"),
        data=DataConfig(**{"train_size": 64, "validation": 40, **data_options}),
        model=ModelConfig("mlp", features=(16,)),
        epochs=epochs,
        batch_size=16,
        optimizer=OptimizerConfig(learning_rate=learning_rate),
    )


def with_rows(config, *rows, **options):
    """Rows of the same names are replaced, others come last."""
    named = {spec.name: spec for spec in (*config.methods, *rows)}
    return dataclasses.replace(config, methods=tuple(named.values()), **options)


def _versions():
    """Rows of every kind of update; those of one network share their program."""
    config, elodi = small_study(), ELODI(mix=0.6, top_k=4)
    rows = (
        MethodSpec("few", "Few classes", ERM(), classes=CLASSES),
        MethodSpec("elodi", "ELODI", elodi, teacher="pair", teaching=BY_PAIR_AND_FEW),
        *(
            MethodSpec(name, name, ERM(), start="baseline", keep=keep)
            for name, keep in (("tuned", 0.0), ("mixed", 0.25))
        ),
    )
    plain = (config.spec("baseline"), config.spec("pair"))
    updates = (Update("few", "elodi", targeted=True), Update("baseline", "few"))
    return dataclasses.replace(config, methods=(*plain, *rows), updates=updates)


VERSIONS = _versions()


class Watched:
    """What a launch of a study said and did."""

    def __init__(self, config, out, *only, **options):
        self.notes, self.trained, self.kept = [], [], []
        options |= {"on_start": self.start, "on_note": self.notes.append}
        run_study(config, out, only=only, **options)

    def start(self, spec, finished):
        (self.kept if finished else self.trained).append(spec.name)


def subset(versions, out, *names):
    """The folder of a launch of some rows of the small study alone."""
    for name in names:
        shutil.copytree(versions / "methods" / name, out / "methods" / name)
    record = json.loads((versions / "study.json").read_text())
    record["methods"] = [row for row in record["methods"] if row["name"] in names]
    (out / "study.json").write_text(json.dumps(record))
    assert Watched(small_study(), out, *names).kept == [*names]
    return out


def files(out):
    """Every result of the folder with its bytes."""
    return {
        str(p.relative_to(out)): p.read_bytes() for p in out.rglob("predictions.npz")
    }


def logits(out, name="baseline"):
    return load_predictions(out / "methods" / name / "predictions.npz").logits


def recorded(out):
    return [m["name"] for m in json.loads((out / "study.json").read_text())["methods"]]

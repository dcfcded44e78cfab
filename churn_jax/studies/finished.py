"""The rows of a finished study, restored from their checkpoints."""

import dataclasses
from pathlib import Path
from typing import Any

from churn_jax.configuration.codec import replaced
from churn_jax.configuration.rows import MethodSpec, averaged_name
from churn_jax.configuration.study import DataConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.studies.folder import StudyFolder, read_study
from churn_jax.studies.inputs import StudyError, StudyInputs
from churn_jax.studies.predictions import row_teachers
from churn_jax.training.program import over_cores
from churn_jax.training.run import Trained
from churn_jax.training.session import restore


class FinishedStudy:
    """A study's folder, opened to ask its trained networks something.

    Attributes:
        out: the folder.
        config: settings that the study was launched with, on a mesh of one device.
        inputs: the data set, and what each row was trained on.
        folder: its record.
    """

    def __init__(self, out: Path, data: DataConfig | None = None):
        """Reads the record and loads the data; `data` says where they are now."""
        recorded = read_study(out)
        config, self.out = recorded.config, Path(out)
        changes = {"train.mesh": MeshShape(), "data": data or config.data}
        self.config = replaced(config, changes.items())
        self.inputs = StudyInputs(self.config)
        there, here = recorded.data.fingerprint, self.dataset.fingerprint
        if there != here:
            raise StudyError(
                f"{self.config.data.name} is not what {self.out} was trained on "
                f"(fingerprint {there[:12]} there, {here[:12]} here)"
            )
        # Equal data may have another name by now, so the record's is taken.
        known = dataclasses.replace(self.config, data=config.data)
        self.folder = StudyFolder(self.out, known, self.dataset)

    @property
    def dataset(self) -> Any:
        """The study's data set."""
        return self.inputs.dataset

    def spec(self, name: str) -> MethodSpec:
        """The row called `name`."""
        names = [averaged_name(spec.name) for spec in self.config.methods]
        if name in names:
            raise StudyError(
                f"{name} is the averaged weights of another row; only the weights that "
                "a row deploys can be analysed"
            )
        spec = self.config.spec(name)
        if not self.folder.finished(spec):
            raise StudyError(f"{name} has not been trained yet in {self.out}")
        return spec

    def restore(self, spec: MethodSpec) -> Trained:
        """The row's trained replicas; its teachers are restored with it."""
        spec = self.spec(spec.name)
        own, run = self.inputs.of(spec), self.inputs.run(spec)

        def other(name: str) -> Trained:
            return self.restore(self.config.spec(name))

        classes = self.dataset.num_classes
        return restore(
            over_cores(run),
            own.dataset,
            directory=self.folder.method_dir(spec.name),
            teacher=row_teachers(self.config, spec, other, own.dataset, classes),
            start=other(spec.start) if spec.start else None,
            mean=own.mean,
            std=own.std,
        )

"""Adapters of other packages' metrics: CLU, Weights & Biases, MLflow.

The packages are optional, and imported when a training begins.
"""

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import json
import os
import time
from pathlib import Path
from typing import Any

from churn_compare.array_files import write_file
from churn_jax.training.loggers import LoggedRun, Values, scalars


@dataclasses.dataclass
class _Sent:
    """What earlier launches sent to where nothing can be taken back.

    A file in the folder of the training has the run's id there and its last step. What
    a resumed training repeats is the same bit by bit, so it is not sent again.
    """

    path: Path | None
    identity: str
    id: str = ""
    step: int = -1

    @classmethod
    def of(cls, run: LoggedRun, name: str) -> "_Sent":
        identity = hashlib.sha256(run.identity.encode()).hexdigest()
        if run.directory is None:
            return cls(None, identity)
        path = run.directory / f"{name}.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_text())
            if found["identity"] == identity:
                return cls(path, identity, found["id"], found["step"])
        return cls(path, identity)

    def keep(self, **changes: Any) -> None:
        """Sets fields, and keeps all."""
        vars(self).update(changes)
        if self.path is not None:
            kept = {"id": self.id, "step": self.step, "identity": self.identity}
            write_file(self.path, json.dumps(kept) + "\n")


class CluLogger:
    """Gives scalars to a metric writer of CLU (`clu.metric_writers`).

    Args:
        writer: a writer, which is flushed and stays open; in a study, names begin with
            the row's (`baseline/train/loss`). Or a function that opens one for a
            `LoggedRun`: each row then has its own, closed when the row ends.
        replicas: also log every replica, not only their mean.

    Example:
        An own folder of events for every row of a study::

            def open_writer(run):
                return metric_writers.create_default_writer(run.directory / "clu")

            run_study(config, out, loggers=[CluLogger(open_writer)])
    """

    def __init__(self, writer: Any, *, replicas: bool = False):
        self.writer, self.replicas = writer, replicas
        self._open: Any = None

    def start(self, run: LoggedRun) -> None:
        """Writes the settings as hyperparameters, once per writer."""
        own = callable(self.writer)
        self._open = self.writer(run) if own else self.writer
        self._prefix = f"{run.name}/" if run.group and not own else ""
        self._sent = _Sent.of(run, "clu")
        if not self._prefix and self._sent.step < 0:
            self._open.write_hparams(dict(run.settings))

    def log(self, values: Values, step: int) -> None:
        """Writes scalars."""
        if step <= self._sent.step:
            return
        numbers = scalars(values, replicas=self.replicas)
        self._open.write_scalars(
            step, {self._prefix + k: v for k, v in numbers.items()}
        )
        self._open.flush()
        self._sent.keep(step=step)

    def close(self, finished: bool) -> None:
        """Closes the row's own writer."""
        if self._open is not None and callable(self.writer):
            self._open.close()
        self._open = None


class WandbLogger:
    """Logs to Weights & Biases: a run per row, grouped by study.

    A resumed training goes on with the run whose id its folder holds. Environment
    variables of W&B, such as `WANDB_PROJECT` and `WANDB_MODE=offline`, mean what they
    always do.

    Args:
        replicas: also log every replica, not only their mean.
        **init: arguments of `wandb.init`, such as `project`, `entity` or `tags`.

    Raises:
        ValueError: wandb is not installed.
    """

    def __init__(self, *, replicas: bool = False, **init: Any):
        _check_installed("wandb")
        self.replicas, self._init = replicas, init
        self._run: Any = None

    def start(self, run: LoggedRun) -> None:
        """Starts a run, or goes on with an earlier launch's."""
        self._sent = _Sent.of(run, "wandb")
        given = {
            "name": run.name,
            "group": run.group or None,
            "config": dict(run.settings),
            # Not a run of the program itself that is open at the same time.
            "reinit": "create_new",
        }
        given |= self._init
        if self._sent.id:
            given |= {"id": self._sent.id, "resume": "allow"}
        self._run = _package("wandb").init(**given)
        self._sent.keep(id=self._run.id)

    def log(self, values: Values, step: int) -> None:
        """Logs scalars that no earlier launch has logged."""
        if step > self._sent.step:
            self._run.log(scalars(values, replicas=self.replicas), step=step)
            self._sent.keep(step=step)

    def close(self, finished: bool) -> None:
        """Ends the run; as failed if training stopped."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=0 if finished else 1)


class MlflowLogger:
    """Logs to MLflow: a run per row, in an experiment per study.

    A resumed training goes on with the run whose id its folder holds; one that was
    stopped is `KILLED` until then.

    Args:
        tracking_uri: a folder or server; default MLflow's own, `MLFLOW_TRACKING_URI`.
        experiment: its name; default `MLFLOW_EXPERIMENT_NAME`, else that of the study.
        replicas: also log every replica, not only their mean.

    Raises:
        ValueError: mlflow is not installed.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None = None,
        experiment: str = "",
        replicas: bool = False,
    ):
        _check_installed("mlflow")
        self.tracking_uri, self.experiment = tracking_uri, experiment
        self.replicas = replicas
        self._client: Any = None

    def start(self, run: LoggedRun) -> None:
        """Starts a run, or goes on with an earlier launch's."""
        mlflow = _package("mlflow")
        client = mlflow.MlflowClient(self.tracking_uri)
        self._sent = _Sent.of(run, "mlflow")
        if self._sent.id:
            client.update_run(self._sent.id, "RUNNING")
        else:
            created = client.create_run(
                self._experiment_id(client, run.group), run_name=run.name
            )
            self._sent.keep(id=created.info.run_id)
            param, settings = mlflow.entities.Param, run.settings.items()
            params = [param(key, str(value)) for key, value in settings]
            client.log_batch(self._sent.id, params=params)
        self._client = client

    def _experiment_id(self, client: Any, group: str) -> str:
        given = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        name = given or group or "Default"
        found = client.get_experiment_by_name(name)
        return found.experiment_id if found else client.create_experiment(name)

    def log(self, values: Values, step: int) -> None:
        """Logs scalars that no earlier launch has logged."""
        if step <= self._sent.step:
            return
        metric, now = _package("mlflow").entities.Metric, int(1000 * time.time())
        numbers = scalars(values, replicas=self.replicas).items()
        metrics = [metric(name, x, now, step) for name, x in numbers]
        self._client.log_batch(self._sent.id, metrics=metrics)
        self._sent.keep(step=step)

    def close(self, finished: bool) -> None:
        """Ends the run."""
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self._sent.id, "FINISHED" if finished else "KILLED")


def _package(name: str) -> Any:
    return importlib.import_module(name)


def _check_installed(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"logging to {package} needs a package: pip install {package}")

"""Adapters of optional packages that keep metrics: CLU, Weights & Biases, MLflow."""

import contextlib
import hashlib
import importlib
import importlib.util
import json
import os
import time
from typing import Any

from churn_compare.array_files import write_file
from churn_jax.training.loggers import LoggedRun, Values, scalars


class _Tracker:
    """Sends every evaluation once to where nothing can be taken back.

    `<file>.json` in the training's folder has the run's id there and its last step:
    what a resumed training repeats is the same bit by bit, and not sent again.
    """

    file = package = ""
    _open: Any
    _send: Any
    _end: Any = staticmethod(lambda run, finished: None)  # leaves the run open

    def __init__(self, *, replicas: bool = False):
        name, self.replicas = self.package, replicas
        if name and importlib.util.find_spec(name) is None:
            raise ValueError(f"logging to {name} needs a package: pip install {name}")

    def start(self, run: LoggedRun) -> None:
        identity = hashlib.sha256(run.identity.encode()).hexdigest()
        self._sent: dict[str, Any] = {"id": "", "step": -1, "identity": identity}
        self._path = run.directory and run.directory / f"{self.file}.json"
        with contextlib.suppress(Exception):  # there is no such file, or a damaged one
            found = json.loads(self._path.read_text() if self._path else "")
            if found["identity"] == identity:
                self._sent = {name: found[name] for name in self._sent}
        self._run = self._open(run)
        self._keep(self._sent["step"])

    def log(self, values: Values, step: int) -> None:
        if step > self._sent["step"]:
            self._send(scalars(values, replicas=self.replicas), step)
            self._keep(step)

    def close(self, finished: bool) -> None:
        self._end(self._run, finished)

    def _keep(self, step: int) -> None:
        self._sent["step"] = step
        if self._path is not None:
            write_file(self._path, json.dumps(self._sent) + "\n")


class CluLogger(_Tracker):
    """Gives scalars to a metric writer of CLU (`clu.metric_writers`).

    Args:
        writer: it is flushed and stays open; in a study, names begin with the row's.
        replicas: also log every replica, not only their mean.
    """

    file = "clu"

    def __init__(self, writer: Any, *, replicas: bool = False):
        super().__init__(replicas=replicas)
        self.writer = writer

    def _open(self, run):
        self._prefix = f"{run.name}/" if run.group else ""
        if not run.group and self._sent["step"] < 0:
            self.writer.write_hparams(dict(run.settings))
        return self.writer

    def _send(self, numbers, step):
        named = {self._prefix + name: x for name, x in numbers.items()}
        self.writer.write_scalars(step, named)
        self.writer.flush()


class WandbLogger(_Tracker):
    """Logs to Weights & Biases: a run per row, grouped by study.

    Args:
        replicas: also log every replica, not only their mean.
        **init: arguments of `wandb.init`, such as `project`, `entity` or `tags`.
    """

    file = package = "wandb"

    def __init__(self, *, replicas: bool = False, **init: Any):
        super().__init__(replicas=replicas)
        self._init = init

    def _open(self, run):
        # `create_new`: not a run of the program itself that is open at the same time.
        given = {"name": run.name, "group": run.group or None, "reinit": "create_new"}
        given |= {"config": dict(run.settings), **self._init}
        if self._sent["id"]:
            given |= {"id": self._sent["id"], "resume": "allow"}
        opened = importlib.import_module("wandb").init(**given)
        self._sent["id"] = opened.id
        return opened

    def _send(self, numbers, step):
        self._run.log(numbers, step=step)

    def _end(self, run, finished):
        run.finish(exit_code=0 if finished else 1)


class MlflowLogger(_Tracker):
    """Logs to MLflow: a run per row, in an experiment per study.

    Args:
        tracking_uri: a folder or server; default MLflow's own, `MLFLOW_TRACKING_URI`.
        **options: `replicas`, to log every replica and not only their mean.
    """

    file = package = "mlflow"

    def __init__(self, *, tracking_uri: str | None = None, **options: Any):
        super().__init__(**options)
        self.tracking_uri = tracking_uri

    def _open(self, run):
        self._mlflow: Any = importlib.import_module("mlflow")
        client = self._mlflow.MlflowClient(self.tracking_uri)
        if self._sent["id"]:
            client.update_run(self._sent["id"], "RUNNING")
            return client
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.group or "Default"
        found = client.get_experiment_by_name(name)
        where = found.experiment_id if found else client.create_experiment(name)
        self._sent["id"] = client.create_run(where, run_name=run.name).info.run_id
        param = self._mlflow.entities.Param
        params = [param(key, str(value)) for key, value in run.settings.items()]
        client.log_batch(self._sent["id"], params=params)
        return client

    def _send(self, numbers, step):
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        metrics = [metric(name, x, now, step) for name, x in numbers.items()]
        self._run.log_batch(self._sent["id"], metrics=metrics)

    def _end(self, run, finished):
        run.set_terminated(self._sent["id"], "FINISHED" if finished else "KILLED")

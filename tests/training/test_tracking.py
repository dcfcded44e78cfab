"""Adapters of CLU, Weights & Biases and MLflow, against the packages themselves.

`make test-loggers` has an environment with all of them.
"""

import struct

import pytest

from churn_jax.training import CluLogger, LoggedRun, MlflowLogger, WandbLogger
from tests.training.test_loggers import logged

# What other packages warn about is theirs to repair.
pytestmark = pytest.mark.filterwarnings("default")

SETTINGS = {"method.beta": 0.5, "train.epochs": 4, "network": ["2 x mlp"], "x": None}
LOGGED = {"validation/accuracy": 0.625, "epoch": 1, "train/loss": 0.5}


def launch(logger, folder, epochs, *, finished=True, name="pair", **options):
    """Logs some epochs in the way of one launch of training."""
    options = {"group": "digits", "identity": "the same", **options}
    logger.start(LoggedRun(name, directory=folder, settings=SETTINGS, **options))
    for epoch in epochs:
        logger.log(logged(epoch), 8 * epoch)
    logger.close(finished)


@pytest.fixture
def mlflow_client(tmp_path, monkeypatch):
    """MLflow's file store, which its newest versions want to be asked for."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    return mlflow.MlflowClient()


def mlflow_runs(client, experiment):
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id], order_by=["start_time"])


def mlflow_steps(client, run, name="train/loss"):
    return [m.step for m in client.get_metric_history(run.info.run_id, name)]


def test_mlflow_has_a_run_per_row_that_goes_on_after_a_stop(mlflow_client, tmp_path):
    logger = MlflowLogger()
    launch(logger, tmp_path / "a", [1, 2, 3], finished=False)
    (run,) = mlflow_runs(mlflow_client, "digits")
    assert run.info.run_name == "pair" and run.info.status == "KILLED"
    assert run.data.params["method.beta"] == "0.5"
    assert run.data.params["network"] == "['2 x mlp']"
    launch(MlflowLogger(), tmp_path / "a", [2, 3, 4], step=8)
    launch(logger, tmp_path / "b", [1], name="other")
    run, other = mlflow_runs(mlflow_client, "digits")
    assert run.info.status == "FINISHED" and other.info.run_name == "other"
    assert mlflow_steps(mlflow_client, run) == [8, 16, 24, 32]
    assert mlflow_steps(mlflow_client, other) == [8]
    assert run.data.metrics.items() >= {**LOGGED, "epoch": 4}.items()


def test_mlflow_begins_another_run_when_the_training_is_another(
    mlflow_client, tmp_path, monkeypatch
):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    logger = MlflowLogger(replicas=True)
    launch(logger, tmp_path, [1, 2])
    launch(logger, tmp_path, [1], identity="another")
    runs = mlflow_runs(mlflow_client, "mine")
    name = "validation/accuracy_replica_1"
    assert [mlflow_steps(mlflow_client, r, name) for r in runs] == [[8, 16], [8]]


def wandb_records(folder):
    """The records of the offline runs in a folder, in their order."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(folder.glob("*/wandb/offline-run-*/*.wandb")):
        data, at = path.read_bytes(), 7
        while at < len(data):  # as in LevelDB's log; all is in its first block
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            assert kind == 1
            yield Record.FromString(data[at + 7 : at + 7 + length])
            at += 7 + length


def test_wandb_has_a_run_per_row_that_goes_on_after_a_stop(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    # Each launch has its folder: W&B names its own by the second.
    for place in "123":
        (tmp_path / place).mkdir()
    given = {"project": "churn", "tags": ["test"]}
    logger = WandbLogger(**given, dir=str(tmp_path / "1"))
    launch(logger, tmp_path / "a", [1, 2, 3], finished=False)
    logger = WandbLogger(**given, dir=str(tmp_path / "2"))
    launch(logger, tmp_path / "a", [2, 3, 4], step=8)
    logger = WandbLogger(**given, dir=str(tmp_path / "3"))
    launch(logger, tmp_path / "b", [1], name="other")
    wandb.teardown()  # its service has written all files
    runs, steps, codes, last = [], [], [], {}
    for found in wandb_records(tmp_path):
        if found.HasField("run"):
            runs.append(found.run)
        if found.HasField("exit"):
            codes.append(found.exit.exit_code)
        if found.HasField("history"):
            steps.append((runs[-1].run_id, found.history.step.num))
            items = found.history.item
            last = {x.key or "/".join(x.nested_key): x.value_json for x in items}
    first, again, other = runs
    assert first.run_id == again.run_id != other.run_id
    assert [run.display_name for run in runs] == ["pair", "pair", "other"]
    assert {run.run_group for run in runs} == {"digits"}
    assert {run.project for run in runs} == {"churn"} and first.tags == ["test"]
    settings = {x.key: x.value_json for x in first.config.update}
    assert settings["method.beta"] == "0.5" and settings["train.epochs"] == "4"
    ours, others = first.run_id, other.run_id
    assert steps == [*((ours, 8 * k) for k in (1, 2, 3, 4)), (others, 8)]
    assert codes == [1, 0, 0]
    assert {name: float(last[name]) for name in LOGGED} == LOGGED


class Written:
    """A writer of CLU's interface that keeps what it is given."""

    def __init__(self):
        self.scalars, self.hparams = [], []

    def write_scalars(self, step, scalars):
        self.scalars.append((step, dict(scalars)))

    def write_hparams(self, hparams):
        self.hparams.append(hparams)

    def flush(self):
        pass


def test_one_clu_writer_for_a_study_tells_rows_by_name(tmp_path):
    writer = Written()
    logger = CluLogger(writer)
    launch(logger, tmp_path / "a", [1, 2])
    launch(logger, tmp_path / "b", [1], name="other")
    launch(CluLogger(writer), tmp_path / "a", [2, 3], step=8)
    assert [step for step, _ in writer.scalars] == [8, 16, 8, 24]
    assert writer.scalars[0][1]["pair/train/loss"] == 0.5
    assert writer.scalars[2][1]["other/train/loss"] == 0.5
    assert writer.hparams == []


def test_a_clu_writer_of_one_training_has_its_settings(tmp_path):
    writer = Written()
    launch(CluLogger(writer, replicas=True), None, [1], group="")
    assert writer.hparams == [SETTINGS]
    assert writer.scalars[0][1]["validation/accuracy_replica_1"] == 0.75

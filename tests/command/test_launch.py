"""How processes find each other, from flags and from what clusters set."""

import pytest

from churn_jax.command import launch
from churn_jax.command.launch import Launch, _arguments, cluster_of, ending_at_once
from tests.refusals import refusals

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "node[1-4]",
}


@pytest.mark.parametrize(
    ("environment", "cluster"),
    [
        ({}, None),
        (SLURM, "SLURM"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, None),  # one task of a larger job
        ({k: v for k, v in SLURM.items() if "STEP" not in k}, None),  # no srun
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "Cloud TPU"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({"TPU_PROCESS_ADDRESSES": "a:1,b:1"}, "Cloud TPU"),
        ({"TPU_WORKER_HOSTNAMES": "a", "MEGASCALE_NUM_SLICES": "2"}, "Cloud TPU"),
        ({"TPU_WORKER_HOSTNAMES": "a", "MEGASCALE_NUM_SLICES": "1"}, None),
        ({"OMPI_COMM_WORLD_SIZE": "several"}, None),
    ],
)
def test_a_cluster_is_known_by_what_it_sets(monkeypatch, environment, cluster):
    monkeypatch.setattr(launch.os, "environ", {**environment, "TPU_SKIP_MDS_QUERY": ""})
    assert cluster_of() == cluster


@pytest.mark.parametrize(
    ("answer", "several"), [(b"a:b:10.0.0.1,a:b:10.0.0.2", True), (b"a:b:c", False)]
)
def test_a_tpu_vm_asks_its_metadata(monkeypatch, tmp_path, answer, several):
    class Answer:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def read(self):
            return answer

    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    monkeypatch.setattr(launch, "_CHIPS", (str(tmp_path),))
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: Answer())
    assert launch._several_tpu_hosts() is several


def test_without_chips_nobody_is_asked(monkeypatch, tmp_path):
    def asked(*args, **kwargs):
        raise AssertionError("asked")

    monkeypatch.setattr(launch, "_CHIPS", (str(tmp_path / "none"),))
    monkeypatch.setattr("urllib.request.urlopen", asked)
    assert launch._several_tpu_hosts() is False


@pytest.mark.parametrize(
    ("given", "cluster", "arguments"),
    [
        (Launch(), None, None),
        (Launch(), "SLURM", {}),
        (Launch(coordinator="auto"), None, {}),
        (Launch(coordinator="none"), "SLURM", None),
        (
            Launch("[::1]:65535", 2, 1),
            "SLURM",
            {
                "coordinator_address": "[::1]:65535",
                "num_processes": 2,
                "process_id": 1,
                "cluster_detection_method": "deactivate",
            },
        ),
    ],
)
def test_flags_or_a_cluster_tell_everything(given, cluster, arguments):
    assert _arguments(given, lambda: cluster) == arguments


test_half_of_the_flags_is_refused = refusals(
    (Launch("host:1"), "needs --launch.num-processes"),
    (Launch("host:1", 2), "needs --launch.num-processes"),
    (Launch("host:1", 2, 2), "num-processes less one; got 2 of 2"),
    (Launch("host:1", 0, 0), "num-processes less one; got 0 of 0"),
    (Launch("host", 2, 0), "host:port of process 0.*got 'host'"),
    (Launch(":1", 2, 0), "host:port of process 0.*got ':1'"),
    (Launch("host:", 2, 0), "host:port of process 0"),
    (Launch("host:abc", 2, 0), "host:port of process 0"),
    (Launch("host:65536", 2, 0), "a port from 1 to 65535"),
    (Launch(num_processes=2), "need --launch.coordinator"),
    (Launch(start_seconds=0), "at least 1"),
    (Launch("auto", lost_seconds=0), "at least 1"),
    call=lambda given: _arguments(given, lambda: None),
)


def test_an_error_of_the_only_process_is_an_error():
    with pytest.raises(ValueError, match="mine"), ending_at_once():
        raise ValueError("mine")


def test_cores_that_others_use_too_are_waited_for(monkeypatch):
    flag = "xla_cpu_collective_call_terminate_timeout_seconds"
    for before, after in (
        ("", f"--{flag}=600"),
        ("--a=1", f"--a=1 --{flag}=600"),
        (f"--{flag}=7", f"--{flag}=7"),
    ):
        monkeypatch.setenv("XLA_FLAGS", before)
        launch.use_all_cores()
        assert launch.os.environ["XLA_FLAGS"] == after

"""The step compiled for eight TPU v5e chips by libtpu, without a TPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import as_users_have_it

pytest.importorskip("libtpu", reason="libtpu, the TPU compiler, is not installed")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "collectives.py"
REPLICAS, MEMBERS, BATCH, CLASSES = 4, 2, 16, 10
OPTIONS = (
    f"--topology v5e:2x4 --json --replicas {REPLICAS} --batch-size {BATCH} "
    "--pixels 8 --width 4 --examples 64"
)


# In a process of its own: libtpu locks, logs and never lets go of a process. A
# co-distilled pair is compiled by tests/command/test_plan.py.
@pytest.mark.slow
def test_the_step_of_taught_networks_compiles_for_a_tpu_topology():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *OPTIONS.split(), "--method", "distillation"],
        env={**as_users_have_it(), "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["device"].startswith("TPU v5")
    assert result["mesh"] == {"replica": 2, "member": 2, "data": 2}
    found = result["collectives"]
    assert {tuple(c["axes"]) for c in found} == {("member",), ("data",)}

    # Between members: gathered logits, float32, and scalars.
    logits = (REPLICAS // 2) * MEMBERS * (BATCH // 2) * CLASSES * 4
    scalar = (REPLICAS // 2) * 4
    across = [c for c in found if "member" in c["axes"]]
    assert any(c["kind"] == "all-gather" for c in across)
    for one in across:
        limit = logits if one["kind"] == "all-gather" else scalar
        assert max(one["parts"]) <= limit

    memory = result["memory"]
    print(f"memory per device in bytes: {memory}")
    assert 0 < memory["reused"] <= memory["arguments"]
    assert memory["temporary"] > 0
    # A v5e chip has 16 GiB.
    assert sum(memory.values()) < 16 * 2**30

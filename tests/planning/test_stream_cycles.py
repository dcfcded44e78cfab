"""Learning a window costs what its batches cost, by the TPU compiler's estimate."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import as_users_have_it

pytest.importorskip("libtpu", reason="libtpu, the TPU compiler, is not installed")

SCRIPT = """
import dataclasses, json, sys
from churn_jax.models.layers import compiling_for
from churn_jax.planning import Slice
from churn_jax.planning.chips import devices_of
from churn_jax.planning.hlo import cycles_of
from churn_jax.planning.rules import shard_bytes
from churn_jax.planning.streams import stream_step
from churn_jax.studies.streams import stream_preset
from churn_jax.configuration.training import MeshShape

config = stream_preset("clicks")
config = dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, buckets=int(sys.argv[1])),
    model=dataclasses.replace(config.model, embedding_dim=int(sys.argv[2])),
    train=dataclasses.replace(config.train, replicas=4, mesh=MeshShape(2, 1, 2)),
)
with compiling_for("tpu"):
    step = stream_step(config, "baseline", devices_of(Slice.parse("v5e:2x2")))
    compiled = step.jitted.lower(*step.arguments).compile()
text = compiled.as_text()
print(json.dumps({
    # No turn of the loop over batches leaves what is done once per window.
    "once": cycles_of(text, trips=0).total,
    "all": cycles_of(text, trips=step.updates).total,
    "open": cycles_of(text).open_loops,
    "temporary": compiled.memory_analysis().temp_size_in_bytes,
    "table": shard_bytes(step.arguments[0].tables),
}))
"""


# In a process of its own: libtpu locks, logs and never lets go of a process.
@pytest.mark.slow
@pytest.mark.parametrize(("buckets", "dim"), [(500_000, 8), (125_000, 32)])
def test_tables_keep_their_layout_between_windows(buckets, dim):
    """Of rows of 24 numbers and of 96, which are kept in different ones."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(buckets), str(dim)],
        env={**as_users_have_it(), "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["open"] == 1
    # With tables `[R, V, width]` in the state it was 93 % of narrow ones, and memory
    # for five of them.
    assert 0 < found["once"] < 0.1 * found["all"]
    assert found["temporary"] < 0.25 * found["table"]

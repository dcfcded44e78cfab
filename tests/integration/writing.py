"""One of two processes that train on a stream and write what they predict.

python writing.py PORT PROCESS --out FOLDER
"""

import sys
from pathlib import Path

import jax
import numpy as np

from churn_compare.store import PredictionsError, ShardWriter
from churn_jax import data, training
from churn_jax.data import Reading
from churn_jax.ensembles import Group
from churn_jax.methods import ERM
from churn_jax.studies import ModelConfig


def full(self, logits):
    raise OSError(28, "No space left on device")


def trained(stream: bool) -> tuple[training.Trained, data.Dataset]:
    """Trained on the digits, which a stream draws in the processes."""
    digits = data.load("digits", validation=50, train_size=64)
    config = training.TrainConfig(
        replicas=2,
        epochs=1,
        batch_size=16,
        eval_batch_size=100,
        mesh=training.MeshShape(replica=2, data=2),
    )
    group = Group(ModelConfig(features=(8,)).build(10), 1)
    run = training.Run("run", ERM(), (group,), config)
    source = data.stream(digits, Reading(threads=2)) if stream else digits
    return training.train(run, source), digits


def main(port: str, process: str, flag: str, out: str) -> None:
    jax.distributed.initialize(f"localhost:{port}", 2, int(process))
    result, digits = trained(stream=True)
    folder = Path(out)
    training.write_predictions(result, digits.test, folder / "shards", meta={"a": 1})
    whole = result.predict(digits.test.images)
    if jax.process_index() == 0:
        np.save(folder / "whole.npy", whole)
    else:  # the disk of one of them is full
        ShardWriter.write = full
    try:
        training.write_predictions(result, digits.test, folder / "failed")
    except (PredictionsError, OSError) as error:
        print(error)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`churn-jax data NAME`: prepares a TFDS set as array_record."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import tyro

from churn_jax.command.options import read_options

__all__ = ["data"]


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Prepares a TFDS data set so that it is read without TensorFlow.

    Attributes:
        name: `digits`, `mnist`, `cifar10`, `tiny_imagenet` (with `--manual-dir`), ...
        data_dir: folder of prepared sets; default is TFDS's own.
        manual_dir: folder of files that were downloaded by hand.
    """

    name: tyro.conf.Positional[str]
    data_dir: Path | None = None
    manual_dir: Path | None = None


def data(argv: Sequence[str]) -> int:
    """Prepares the set and prints what it holds."""
    parsed = read_options(Arguments, argv, prog="churn-jax data")
    from churn_jax.data import prepare

    print(prepare(parsed.name, data_dir=parsed.data_dir, manual_dir=parsed.manual_dir))
    return 0

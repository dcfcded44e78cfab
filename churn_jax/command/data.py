"""`churn-jax data NAME`: prepares a TFDS set as array_record, or writes one `.npz`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from churn_jax.command.options import read_options


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Prepares a TFDS data set so that it is read without TensorFlow, or one file.

    Attributes:
        name: `digits`, `mnist`, `cifar10`, `tiny_imagenet` (with `--manual-dir`), ...;
            with `--out` also an `.npz` file or a function of your own.
        data_dir: folder of prepared sets; default is TFDS's own.
        manual_dir: folder of files that were downloaded by hand.
        out: write the images, labels and ids of all splits to this `.npz` file.
        shrink: average squares of so many pixels a side: 2 makes 14 x 14 of 28 x 28.
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    data_dir: Path | None = None
    manual_dir: Path | None = None
    out: Path | None = None
    shrink: int = 1


def data(argv: Sequence[str]) -> int:
    """Prepares the set and prints what it holds."""
    parsed = read_options(Arguments, argv, command="churn-jax data")
    from churn_jax.data import prepare, write_npz

    folders = {"data_dir": parsed.data_dir, "manual_dir": parsed.manual_dir}
    if parsed.out is not None:
        print(write_npz(parsed.name, parsed.out, shrink=parsed.shrink, **folders))
        return 0
    if parsed.shrink != 1:
        raise ValueError("--shrink needs --out FILE.npz, where smaller images go")
    print(prepare(parsed.name, **folders))
    return 0

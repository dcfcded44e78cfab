"""Who teaches a row besides its teacher, how, and which rows replace which."""

import dataclasses
from pathlib import PurePath

from churn_jax.methods.base import QUIET

__all__ = ["Teaching", "Update"]


@dataclasses.dataclass(frozen=True)
class Teaching:
    """How a row is taught.

    Attributes:
        old: rows that are deployed already, one network each, in the order of their
            versions; the method learns from them beside or instead of its teacher.
        members: how many of the teacher's members teach, the first ones; 0 is all.
        offline: the teacher's averaged logits are computed once, on the training
            examples as they are stored, instead of in every update on what the
            student sees.
        calibrated: every member's logits are divided by the temperature that fits it
            best on the validation split, before anybody averages them.
        dtype: what the teacher computes in, `float32` or `bfloat16`; empty is what it
            was trained in.
        logits: path of a `predictions.npz` of the training examples, or of a folder of
            their shards, of one run or of as many as the study has, that teaches
            instead of a row: a network of any framework. Its examples are found by
            their ids.

    References:
        [elodi] Sec. 5.5 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """

    old: tuple[str, ...] = ()
    members: int = 0
    offline: bool = False
    calibrated: bool = False
    dtype: str = ""
    logits: str = dataclasses.field(default="", metadata=QUIET)

    def __post_init__(self):
        """Checks what needs no study."""
        if self.members < 0:
            raise ValueError(f"teaching.members must be at least 0; got {self.members}")
        if self.dtype not in ("", "float32", "bfloat16"):
            raise ValueError(
                f"teaching.dtype must be float32 or bfloat16; got {self.dtype!r}"
            )
        if len(set(self.old)) != len(self.old):
            raise ValueError(f"teaching.old names a row twice: {', '.join(self.old)}")


@dataclasses.dataclass(frozen=True)
class Update:
    """One model that replaces another.

    Attributes:
        old: row of the model in use, or the path of a `predictions.npz`, which may
            stand for the shards in the folder `predictions` beside it.
        new: row of the model that replaces it.
        label: shown in tables; empty is made of the rows' labels.
        targeted: run r of the new row was trained against run r of the old one, so
            only these pairs are updates that would happen; else every old run may be
            replaced by every new one.
    """

    old: str
    new: str
    label: str = ""
    targeted: bool = False

    def __post_init__(self):
        """Refuses what is no update."""
        if self.old == self.new:
            raise ValueError(f"{self.old!r} cannot replace itself")

    @property
    def from_file(self) -> bool:
        """Whether the old model is a file of predictions."""
        return PurePath(self.old).suffix == ".npz"

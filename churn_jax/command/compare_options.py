"""Options of `churn-jax compare`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from churn_jax.comparison.gate_file import read_gates
from churn_jax.comparison.gates import Gate, combined, gates_by_name

__all__ = ["DESCRIPTION", "Arguments", "Gates", "Reading"]

DESCRIPTION = (
    "Compares the predictions of two versions of a classifier, whatever trained "
    "them, on the same examples: accuracy, churn, negative and positive flips, "
    "calibration, each with a confidence interval; per class and per slice; the "
    "worst regressions by id. With a folder and no NEW, every version in it against "
    "every other.\n\n"
    "Files: .npz, .npy, .csv, .csv.gz, .parquet, with logits, probabilities or "
    "predicted classes. Columns (and arrays in .npz) are known by name: id; label "
    "or y_true; prediction or y_pred; logit_<class> or prob_<class>; run. Ids join "
    "the two sides; without ids the rows must be in the same order.\n\n"
    "Gates: limits may be written 0.02 or 2%. The exit code is 0 if all hold, 1 if "
    "one does not, 2 for bad input. A gate file is TOML with the same names and "
    'those of any other quantity, max-nfr = "1%" or max-nfr = {limit = 0.01, on = '
    '"bound"}; tables [slices], [slices.region], [slices.region."north"], '
    '[classes], [classes."7"] hold gates on each group or on one.'
)


def _shown(what: str) -> Any:
    """How the help shows an option that need not be given."""
    return tyro.conf.arg(metavar=what, help_behavior_hint="")


File = Annotated[Path | None, _shown("FILE")]
Limit = Annotated[str | None, _shown("LIMIT")]
Name = Annotated[str | None, _shown("NAME")]
Kind = Annotated[
    Literal["logits", "probabilities", "classes"] | None,
    _shown("{logits,probabilities,classes}"),
]


@dataclasses.dataclass(frozen=True)
class Gates:
    """Conditions on the update.

    Attributes:
        gates: a TOML file with them; options replace what it says about the same.
        max_churn: predictions that change, at most.
        max_nfr: negative flips, right before and wrong now, at most.
        max_relative_nfr: NFR over that of independent errors, at most.
        min_accuracy_gain: new minus old, at least; may be negative.
        max_slice_churn: churn of each slice, at most.
        max_slice_nfr: NFR of each slice, at most.
        min_slice_accuracy_gain: accuracy gain of each slice, at least.
        max_class_churn: churn of each class, at most.
        max_class_nfr: NFR of each class, at most.
        min_class_accuracy_gain: accuracy gain of each class, at least.
        max_excess_churn: churn beyond that of retraining alone, at most; needs runs.
        on: the limits of these options are for the estimate, or for the bound of its
            interval nearer to failing; a gate file says it itself. Default: estimate.
        min_examples: slices and classes with fewer are not judged by these options.
    """

    gates: File = None
    max_churn: Limit = None
    max_nfr: Limit = None
    max_relative_nfr: Limit = None
    min_accuracy_gain: Limit = None
    max_slice_churn: Limit = None
    max_slice_nfr: Limit = None
    min_slice_accuracy_gain: Limit = None
    max_class_churn: Limit = None
    max_class_nfr: Limit = None
    min_class_accuracy_gain: Limit = None
    max_excess_churn: Limit = None
    on: Annotated[Literal["estimate", "bound"] | None, _shown("{estimate,bound}")] = (
        None
    )
    min_examples: Annotated[int | None, _shown("COUNT")] = None

    def read(self) -> tuple[Gate, ...]:
        """Those of the file and of the options."""
        limits = {
            f"--{name.replace('_', '-')}": value
            for name, value in vars(self).items()
            if name.startswith(("max_", "min_")) and name != "min_examples"
        }
        settings = {
            name: getattr(self, name)
            for name in ("on", "min_examples")
            if getattr(self, name) is not None
        }
        given = gates_by_name(limits, **settings)
        if settings and not given:
            option = f"--{next(iter(settings)).replace('_', '-')}"
            raise ValueError(f"{option} is for limits given as options; there are none")
        return combined(read_gates(self.gates) if self.gates else (), given)


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files are read and joined.

    Attributes:
        kind: what the predictions are, where it cannot be told.
        old_kind: of the old side alone.
        new_kind: of the new side alone.
        id_column: column or array of ids.
        label_column: column or array of labels.
        prediction_column: column or array of predicted classes.
        class_map: file with the new class of each old class (.json, or .csv with
            columns old and new), or "identity" where equal numbers are equal classes.
        on_missing: "intersect" goes on with the examples that both sides have.
        order: of a folder's versions, oldest first.
    """

    kind: Kind = None
    old_kind: Kind = None
    new_kind: Kind = None
    id_column: Name = None
    label_column: Name = None
    prediction_column: Name = None
    class_map: Annotated[str | None, _shown("FILE")] = None
    on_missing: Literal["error", "intersect"] = "error"
    order: Annotated[tuple[str, ...], _shown("NAME ...")] = ()


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Options of the comparison.

    Attributes:
        old: predictions of the version in use, or a folder of versions.
        new: predictions of the version that is to replace it.
        labels: file of the right classes, where the predictions hold none.
        slices: file of which every column is a grouping of the examples.
        ids: file of ids for sides that hold none.
        gate: conditions.
        reading: of files.
        regressions: how many negative flips to list.
        level: of confidence intervals.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        html: write a page.
        json: write all numbers.
        markdown: write tables for a comment on a pull request.
    """

    old: Annotated[tyro.conf.Positional[Path], _shown("OLD")]
    new: Annotated[tyro.conf.Positional[Path | None], _shown("[NEW]")] = None
    labels: File = None
    slices: File = None
    ids: File = None
    html: File = None
    json: File = None
    markdown: File = None
    gate: tyro.conf.OmitArgPrefixes[Gates] = dataclasses.field(default_factory=Gates)
    reading: tyro.conf.OmitArgPrefixes[Reading] = dataclasses.field(
        default_factory=Reading
    )
    regressions: int = 20
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0

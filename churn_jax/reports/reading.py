"""Row by row from a study's folder to numbers; logits are dropped on the way."""

import dataclasses
from collections.abc import Collection

import numpy as np

from churn_compare.store import (
    Predictions,
    PredictionsError,
    check_comparable,
    is_stored,
    load_predictions,
)
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import TEST, VALIDATION, Study
from churn_jax.reports.equivalents import (
    ReferenceCurve,
    equivalents,
    reference_curve,
    reference_row,
)
from churn_jax.reports.estimates import Estimate, over_runs
from churn_jax.reports.members import (
    DIAGNOSTICS,
    MEMBERS,
    Agreement,
    Members,
    agreement_of,
    load_agreement,
    load_members,
)
from churn_jax.reports.own_columns import with_columns
from churn_jax.reports.summary import (
    AllRunsStoppedError,
    MethodSummary,
    check_same_runs,
    summarize,
)
from churn_jax.reports.summary_in_blocks import check_fits, summarize_in_blocks

CALIBRATED = frozenset(
    ("calibrated_nll", "calibrated_brier", "calibrated_ece", "temperature", "dee")
)
"""Columns that need the validation predictions."""


class Reading:
    """What has been read of a study so far."""

    def __init__(self, study: Study, columns: Collection[str]):
        self.study, self.columns = study, frozenset(columns)
        # Who all rows are evaluated on, from the first row that was read.
        self.examples: Predictions | None = None
        self.summaries: dict[str, MethodSummary] = {}  # by row
        self.agreements: dict[str, Agreement] = {}  # by row, where members were kept
        self.reasons: dict[str, str] = {}  # why a row has no summary
        self.damaged: set[str] = set()  # trained rows with unusable predictions
        self.unreadable: list[str] = []  # sentences about other unusable files
        self.losses: list[str] = []  # those about damaged ones

    def read(self, info: RowRecord) -> None:
        """A row's numbers, or the reason why there are none."""
        path = self.study.method_folder(info.name) / TEST
        if not is_stored(path):
            self.reasons[info.name] = "it has no predictions yet"
            if info.trained:
                self.damaged.add(info.name)
                self.reasons[info.name] = f"{path} does not exist"
            return
        try:
            predictions = load_predictions(path)
            examples = _examples_of(predictions)
            if self.examples is not None:
                check_comparable(self.examples, examples)
            summary = _summarized(
                predictions,
                info.stopped_replicas,
                self._validation(info, predictions),
            )
            summary, wrong = with_columns(summary, predictions, self.columns)
        except AllRunsStoppedError as error:
            self.reasons[info.name] = str(error)
            return
        except PredictionsError as error:
            self.damaged.add(info.name)
            said = _sentence(error)
            named = said.startswith(str(self.study.method_folder(info.name)))
            self.reasons[info.name] = said if named else f"{path}: {said}"
            return
        self.examples = self.examples or examples
        self.unreadable += [f"{info.label}: {_sentence(error)}." for error in wrong]
        if info.parameters is not None:
            size = Estimate(float(info.parameters), np.nan, np.nan)
            summary = dataclasses.replace(summary, parameters=size)
        self.summaries[info.name] = self._with_members(info, summary)

    def _validation(
        self, info: RowRecord, predictions: Predictions
    ) -> Predictions | None:
        """What temperatures are fitted on, for studies that show what they give."""
        path = self.study.method_folder(info.name) / VALIDATION
        if not self.columns & CALIBRATED or not is_stored(path):
            return None
        try:
            validation = load_predictions(path)
            check_same_runs(predictions, validation)
            check_fits(validation)
        except PredictionsError as error:
            self._damage(f"{info.label} has no calibrated numbers", error)
            return None
        return validation

    def _with_members(self, info: RowRecord, summary: MethodSummary) -> MethodSummary:
        """The summary with what the members' predictions say, if they were kept."""
        folder = self.study.method_folder(info.name)
        try:
            if (folder / MEMBERS).exists():
                members = load_members(folder / MEMBERS)
                _check_examples(self.examples, members)
                agreement = agreement_of(members, info.method)
            elif (folder / DIAGNOSTICS).exists():
                agreement = load_agreement(folder / DIAGNOSTICS)
            else:
                return summary
            agreement = agreement.of_runs(summary.runs)
        except PredictionsError as error:
            self._damage(f"Nothing is known of the members of {info.label}", error)
            return summary
        self.agreements[info.name] = agreement
        return dataclasses.replace(
            summary,
            member_kl=over_runs(agreement.mean_kl),
            member_disagreement=over_runs(agreement.disagreement),
        )

    def place_on_reference(self) -> ReferenceCurve | None:
        """Gives every row its deep-ensemble equivalent, where the study shows it."""
        if "dee" not in self.columns:
            return None
        info = reference_row(self.study, self.summaries)
        if info is None:
            if self.summaries:
                self.unreadable.append(
                    "No row has the predictions of a deep ensemble's members on both "
                    "splits, so there are no deep-ensemble equivalents."
                )
            return None
        try:
            curve = reference_curve(self.study, info, self.summaries[info.name].runs)
        except PredictionsError as error:
            self._complain("There are no deep-ensemble equivalents", error)
            return None
        self.summaries = {
            name: equivalents(curve, summary)
            for name, summary in self.summaries.items()
        }
        return curve

    def _damage(self, what: str, error: PredictionsError) -> None:
        self._complain(what, error)
        self.losses.append(self.unreadable[-1])

    def _complain(self, what: str, error: PredictionsError) -> None:
        self.unreadable.append(f"{what}: {_sentence(error)}.")


def _examples_of(predictions: Predictions) -> Predictions:
    """Who is in it, without the logits."""
    nothing = np.zeros((1, predictions.ids.size, 2), np.float32)
    return Predictions(predictions.ids, predictions.labels, nothing)


def _summarized(
    predictions: Predictions,
    stopped: tuple[int, ...],
    validation: Predictions | None,
) -> MethodSummary:
    """In memory where both splits are, else block by block."""
    whole = all(of is None or of.in_memory for of in (predictions, validation))
    summary = summarize if whole else summarize_in_blocks
    return summary(predictions, stopped=stopped, validation=validation)


def _check_examples(examples: Predictions | None, members: Members) -> None:
    """Refuses members' predictions of other examples than the rows'."""
    if examples is not None:
        own = {"ids": members.ids, "labels": members.labels}
        check_comparable(examples, dataclasses.replace(examples, **own))


def _sentence(error: ValueError) -> str:
    return " ".join(str(error).split())

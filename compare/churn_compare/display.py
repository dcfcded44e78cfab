"""The results that users hold: they print, show and save themselves."""

import dataclasses
import datetime
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from churn_compare.array_files import write_file
from churn_compare.documents import (
    Document,
    Strong,
    Text,
    html_fragment,
    html_page,
    json_text,
    markdown,
    plain_text,
    plain_values,
)
from churn_compare.escaping import printable
from churn_compare.result import (
    Curve,
    Flow,
    GateOutcome,
    Interval,
    Measured,
    MeasureFindings,
    Points,
    Regression,
    State,
    Version,
    state_of,
)

FORMAT = 1  # grows where a program that reads the file would have to change


class Display:
    """Base of the results: they print, show and save themselves."""

    @property
    def gates(self) -> Sequence[GateOutcome]:
        """The outcome of each condition."""
        raise NotImplementedError

    @property
    def passed(self) -> bool:
        """True if every gate holds; True without gates, False where one is open."""
        return self.state == "pass"

    @property
    def state(self) -> State:
        """The worst of the gates': "fail", "inconclusive" or "pass"."""
        return state_of(outcome.state for outcome in self.gates)

    def document(self, command: str = "") -> Document:
        """The report, with the command under its title; a page shows it in full."""
        from churn_compare.report import document

        return document(self, command)

    def terminal(self, *, full: bool = False) -> Document:
        """The document that is printed, in full detail or only the verdict."""
        return self.document().as_lines("full" if full else "verdict")

    def markdown(self) -> str:
        """A comment for a pull request."""
        document = self.document().at("summary")
        title = document.title.replace("→", "->")
        return markdown(dataclasses.replace(document, title=title), level=3)

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        document = self.document().at("summary")
        return html_fragment([Text((Strong(document.title),)), *document.blocks])

    def __str__(self) -> str:
        """The tables as they are printed in a terminal, without colours."""
        return plain_text(self.terminal())

    # Of an update: both names; of each measure its name, examples, numbers and groups;
    # the verdict.
    def _sides(self) -> tuple[str, str]:
        raise NotImplementedError

    def _parts(self) -> Iterable[tuple]:
        raise NotImplementedError

    def _verdict(self) -> Any:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; undefined numbers are None."""
        start = {"format": FORMAT, "passed": self.passed, "state": self.state}
        return start | {"verdict": self._verdict()} | plain_values(self)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each number, as of a data frame: `quantity`, `value` and so on."""
        about, found = dict(zip(("old", "new"), self._sides(), strict=True)), []
        for named, examples, quantities, groups in self._parts():
            parts = [("", "", examples, quantities)]
            parts += [(g.grouping, g.name, g.examples, g.quantities) for g in groups]
            found += [
                {
                    **(about | named),
                    "grouping": grouping,
                    "group": group,
                    "examples": count,
                    "quantity": name,
                    **dataclasses.asdict(interval),
                }
                for grouping, group, count, numbers in parts
                for name, interval in numbers.items()
            ]
        return found

    def suites(self) -> list[tuple[str, Sequence[GateOutcome]]]:
        """The gates of each update."""
        return [(" -> ".join(self._sides()), self.gates)]

    def junit(self) -> str:
        """JUnit XML for a CI: a test case for each gate, inconclusive ones skipped."""
        # Elements and attributes are those of the Ant task's schema, in its order: the
        # readers of GitLab, Jenkins and GitHub's actions take these and ignore others.
        root = ElementTree.Element("testsuites")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        for number, (title, gates) in enumerate(self.suites()):
            name, lines = printable(title), [printable(gate.line) for gate in gates]
            states = [gate.state for gate in gates]
            about: Any = {"package": "churn_jax", "id": number, "hostname": "localhost"}
            about |= {"name": name, "timestamp": now, "time": 0}
            about |= {"tests": max(len(gates), 1), "failures": states.count("fail")}
            about |= {"errors": 0, "skipped": states.count("inconclusive")}
            suite = _element(root, "testsuite", **about)
            _element(suite, "properties")
            for gate, line in zip(gates, lines, strict=True):
                of = {"classname": name, "name": printable(gate.gate), "time": 0}
                case = _element(suite, "testcase", **of)
                if gate.state == "fail":
                    _element(case, "failure", line, message=line, type="gate")
                elif gate.state == "inconclusive":
                    _element(case, "skipped", message=line)
            if not gates:
                of = {"classname": name, "name": "compared, without conditions"}
                _element(suite, "testcase", **of, time=0)
            _element(suite, "system-out", "\n".join(lines))
            _element(suite, "system-err")
        ElementTree.indent(root)
        text = ElementTree.tostring(root, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'

    def save_json(self, path: str | os.PathLike) -> Path:
        """Writes `to_dict()`, whole or not at all."""
        return write_file(path, json_text(self.to_dict()))

    def save_html(self, path: str | os.PathLike, *, command: str | None = None) -> Path:
        """Writes the page, one file that needs nothing else, whole or not at all."""
        return write_file(path, html_page(self.document(command or "")))


def _element(above, tag: str, text: str = "", **attributes: Any):
    texts = {name: str(value) for name, value in attributes.items()}
    found = ElementTree.SubElement(above, tag, texts)
    found.text = text or None
    return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CompareResult(Display, Measured):
    """Everything that `compare` finds; shows itself in a notebook and a terminal.

    Attributes, next to those of `Measured`:
        old: the version in use.
        new: the one that is to replace it.
        examples: N, those that both have.
        flow: changed predictions from class to class.
        regressions: the largest negative flips, worst first.
        regressions_total: how many examples are negative flips in some pair of runs.
        curves: reliability of old and new; None without labels and scores.
        points: for the scatter of confidence and displacement; None without scores.
        gates: the outcome of each condition.
        notes: sentences about what was read and joined.
        read: what was read of each side and what was left out, a line each.
    """

    old: Version
    new: Version
    examples: int
    flow: Flow
    regressions: tuple[Regression, ...] = ()
    regressions_total: int = 0
    curves: tuple[Curve, Curve] | None = None
    points: Points | None = None
    gates: tuple[GateOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    @property
    def labelled(self) -> bool:
        """True if there were labels."""
        return "accuracy_gain" in self.quantities

    def __repr__(self) -> str:
        """One line; all numbers would fill screens, and `print` shows them."""
        sides = f"{self.old.name} -> {self.new.name}"
        churn = f"churn {self['churn'].value:.4g}"
        return f"<{type(self).__name__} {sides}: {self.examples:,} examples, {churn}>"

    @property
    def title(self) -> str:
        """Both versions, as in a heading."""
        return f"{self.old.name} → {self.new.name}"

    def _sides(self) -> tuple[str, str]:
        return self.old.name, self.new.name

    def _parts(self) -> Iterable[tuple]:
        return [({}, self.examples, self.quantities, self.groups)]

    def _verdict(self) -> list[str]:
        from churn_compare.verdict import sentences

        return list(sentences(self))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; undefined numbers are None."""
        found = super().to_dict()
        if self.curves is not None:
            found["curves"] = dict(zip(("old", "new"), found["curves"], strict=True))
        return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OutcomesResult(Display):
    """Everything that `compare_outcomes` finds; shows itself as a `CompareResult` does.

    Attributes:
        old: name of the version in use.
        new: name of the one that is to replace it.
        examples: N, those that both have.
        level: level of all confidence intervals, 0.95 for 95 %.
        measures: each compared on its own.
        gates: the outcome of each condition.
        notes: sentences about what was read and joined.
        read: what was read of each side and what was left out, a line each.
    """

    old: str
    new: str
    examples: int
    level: float
    measures: tuple[MeasureFindings, ...]
    gates: tuple[GateOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> MeasureFindings:
        """The measure called `name`."""
        for measure in self.measures:
            if measure.name == name:
                return measure
        known = ", ".join(measure.name for measure in self.measures)
        raise KeyError(f"no measure {name!r} in this comparison; it has {known}")

    def __repr__(self) -> str:
        """One line."""
        names = ", ".join(measure.name for measure in self.measures)
        sides = f"{self.old} -> {self.new}"
        return f"<{type(self).__name__} {sides}: {self.examples:,} examples, {names}>"

    def _sides(self) -> tuple[str, str]:
        return self.old, self.new

    def _parts(self) -> Iterable[tuple]:
        for m in self.measures:
            yield {"measure": m.name}, self.examples, m.quantities, m.groups

    def _verdict(self) -> dict[str, list[str]]:
        from churn_compare.verdict import sentences

        return {m.name: list(sentences(m)) for m in self.measures}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VersionsResult(Display):
    """Every version against every other, and every update on its own.

    Attributes:
        versions: the oldest first.
        examples: N, those that all versions have.
        level: level of all confidence intervals, 0.95 for 95 %.
        accuracy: accuracy of each version; empty without labels.
        churn: `[V, V]` share of examples whose predicted class differs, mean over pairs
            of runs; on the diagonal between runs of one version, NaN with one run.
        negative_flip_rate: `[V, V]` right in the row's version, wrong in the column's;
            None without labels.
        relative_negative_flip_rate: `[V, V]` too; 1 for independent errors.
        ambiguity: share of examples that some version predicts as another class than
            the last version does; of several runs, its first.
        discrepancy: the largest share that a single version does.
        steps: each version against the one before it.
        whole: the last version against the first.
        notes: sentences about what was read and joined.
    """

    versions: tuple[Version, ...]
    examples: int
    level: float
    accuracy: tuple[Interval, ...]
    churn: np.ndarray
    negative_flip_rate: np.ndarray | None
    relative_negative_flip_rate: np.ndarray | None
    ambiguity: float
    discrepancy: float
    steps: tuple[CompareResult, ...]
    whole: CompareResult
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the versions, the oldest first."""
        return tuple(version.name for version in self.versions)

    @property
    def labelled(self) -> bool:
        """True if there were labels."""
        return self.negative_flip_rate is not None

    @property
    def gates(self) -> tuple[GateOutcome, ...]:
        """Outcomes of the gates of every step."""
        return tuple(outcome for step in self.steps for outcome in step.gates)

    def step_sum(self, name: str) -> float:
        """Sum of the quantity `name` over the steps.

        Of churn and of flips this is at least what they are from the first version to
        the last: an example that flips and flips back counts in two steps and not in
        the whole.

        Args:
            name: a quantity that every step has.
        """
        return float(sum(step[name].value for step in self.steps))

    def __repr__(self) -> str:
        """One line; all numbers would fill screens, and `print` shows them."""
        names = ", ".join(self.names)
        return f"<{type(self).__name__} of {names}: {self.examples:,} examples>"

    def rows(self) -> list[dict[str, Any]]:
        """The rows of every step, one after another."""
        return [row for step in self.steps for row in step.rows()]

    def suites(self) -> list[tuple[str, Sequence[GateOutcome]]]:
        """The gates of every step."""
        return [suite for step in self.steps for suite in step.suites()]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; undefined numbers are None."""
        matrices = ("churn", "negative_flip_rate", "relative_negative_flip_rate")
        return {
            "format": FORMAT,
            "versions": list(self.names),
            "examples": self.examples,
            "level": self.level,
            "passed": self.passed,
            "state": self.state,
            "accuracy": plain_values(self.accuracy),
            "ambiguity": self.ambiguity,
            "discrepancy": self.discrepancy,
            **{name: plain_values(getattr(self, name)) for name in matrices},
            "steps": [step.to_dict() for step in self.steps],
            "first_to_last": self.whole.to_dict(),
            "notes": list(self.notes),
        }

"""Results of comparisons with methods that print, show and save them."""

import dataclasses
import datetime
import os
from collections.abc import Mapping, Sequence
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
    Regression,
    State,
    Version,
    state_of,
)

FORMAT = 1  # increased when programs that read the file have to change
_COMMENT = 65_536  # characters of a comment that GitHub takes
_REST = "\n\nThe rest is left out: a comment may not be longer; --html has all of it.\n"


class Display:
    """Base class of results, with methods that print, show and save them."""

    @property
    def gates(self) -> Sequence[GateOutcome]:
        """Outcomes of the conditions."""
        raise NotImplementedError

    @property
    def passed(self) -> bool:
        """True if every gate holds; False if one fails or is inconclusive."""
        return self.state == "pass"

    @property
    def state(self) -> State:
        """The worst state of a gate: "fail", "inconclusive" or "pass"."""
        return state_of(outcome.state for outcome in self.gates)

    def document(self, command: str = "") -> Document:
        """The report, with the command under its title."""
        from churn_compare.report import document

        return document(self, command)

    def terminal(self, *, full: bool = False) -> Document:
        """The report as it is printed, in full detail or only its verdict."""
        return self.document().as_lines("full" if full else "verdict")

    def markdown(self) -> str:
        """The report as Markdown, for a comment on a pull request."""
        document = self.document().at("summary")
        title = document.title.replace("→", "->")
        text = markdown(dataclasses.replace(document, title=title), level=3)
        if len(text) > _COMMENT:
            text = text[: _COMMENT - len(_REST)].rpartition("\n\n")[0] + _REST
        return text

    def _repr_html_(self) -> str:
        """The report as HTML for a notebook."""
        document = self.document().at("summary")
        return html_fragment([Text((Strong(document.title),)), *document.blocks])

    def __repr__(self) -> str:
        """One line; all numbers would fill screens, and `print` shows them."""
        return f"<{type(self).__name__} {self.title.replace('→', '->')}>"

    def __str__(self) -> str:
        """The report as it is printed in a terminal, without colours."""
        return plain_text(self.terminal())

    @property
    def title(self) -> str:
        """Names of both versions, as in a heading."""
        raise NotImplementedError

    def verdict(self) -> Any:
        """The findings in sentences, as they are written to JSON."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; undefined numbers are None."""
        start = {"format": FORMAT, "passed": self.passed, "state": self.state}
        return start | {"verdict": self.verdict()} | plain_values(self)

    def suites(self) -> list[tuple[str, Sequence[GateOutcome]]]:
        """Names of the updates with their gates."""
        return [(self.title.replace("→", "->"), self.gates)]

    def junit(self, inconclusive: str = "skipped") -> str:
        """JUnit XML, a test case per gate; inconclusive ones "skipped" or "failure"."""
        # Elements and attributes are those of the Ant task's schema, in its order:
        # GitLab, Jenkins and GitHub's actions read these.
        root = ElementTree.Element("testsuites")
        kinds = {"fail": "failure", "inconclusive": inconclusive}
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        for number, (title, gates) in enumerate(self.suites()):
            name, lines = printable(title), [printable(gate.line) for gate in gates]
            found = [kinds.get(gate.state, "") for gate in gates]
            about: Any = {"package": "churn_compare", "id": number, "name": name}
            about |= {"hostname": "localhost", "timestamp": now, "time": 0}
            about |= {"tests": max(len(gates), 1), "failures": found.count("failure")}
            about |= {"errors": 0, "skipped": found.count("skipped")}
            suite = _element(root, "testsuite", **about)
            _element(suite, "properties")
            for gate, line, kind in zip(gates, lines, found, strict=True):
                of = {"classname": name, "name": printable(gate.gate), "time": 0}
                case = _element(suite, "testcase", **of)
                if kind == "failure":
                    _element(case, "failure", line, message=line, type="gate")
                elif kind:
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
        """Writes `to_dict()` to a file, whole or not at all."""
        return write_file(path, json_text(self.to_dict()))

    def save_html(self, path: str | os.PathLike, *, command: str | None = None) -> Path:
        """Writes the report as one self-contained HTML file, whole or not at all."""
        return write_file(path, html_page(self.document(command or "")))


def _element(above, tag: str, text: str = "", **attributes: Any):
    texts = {name: str(value) for name, value in attributes.items()}
    found = ElementTree.SubElement(above, tag, texts)
    found.text = text or None
    return found


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CompareResult(Display, Measured):
    """The result of `compare`; a notebook and a terminal show it as a report."""

    old: Version  # version in use
    new: Version  # version that is to replace it
    examples: int  # number of examples that both versions have
    flow: Flow  # changed predictions from class to class
    regressions: tuple[Regression, ...] = ()  # largest negative flips, worst first
    regressions_total: int = 0  # number of examples that flip in some pair of runs
    # Reliability of `old` and `new`; None without labels and scores.
    curves: Mapping[str, Curve] | None = None
    gates: tuple[GateOutcome, ...] = ()  # outcomes of the conditions
    notes: tuple[str, ...] = ()  # sentences about what was read and joined
    # Lines on what was read of each side and what was left out.
    read: tuple[str, ...] = ()

    def each(self) -> dict[str, Measured]:
        """Measures by name; here one, whose name is empty."""
        return {"": self}

    @property
    def labelled(self) -> bool:
        """True if there were labels."""
        return "accuracy_gain" in self.quantities

    @property
    def scored(self) -> bool:
        """True if both versions have logits or probabilities."""
        return "classes" not in (self.old.kind, self.new.kind)

    @property
    def title(self) -> str:
        """Names of both versions, as in a heading."""
        return f"{self.old.name} → {self.new.name}"

    def verdict(self) -> list[str]:
        """The findings in sentences."""
        from churn_compare.verdict import sentences

        return list(sentences(self))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class OutcomesResult(Display):
    """The result of `compare_outcomes`, which notebooks and terminals show."""

    old: str  # name of the version in use
    new: str  # name of the version that is to replace it
    examples: int  # number of examples that both versions have
    level: float  # confidence level of all intervals, 0.95 for 95 %
    measures: tuple[MeasureFindings, ...]  # measures, each compared on its own
    gates: tuple[GateOutcome, ...] = ()  # outcomes of the conditions
    notes: tuple[str, ...] = ()  # sentences about what was read and joined
    read: tuple[str, ...] = ()  # what was read of each side and what was left out

    def each(self) -> dict[str, MeasureFindings]:
        """Measures by name."""
        return {measure.name: measure for measure in self.measures}

    def __getitem__(self, name: str) -> MeasureFindings:
        """The measure called `name`."""
        if name not in (found := self.each()):
            known = ", ".join(found)
            raise KeyError(f"no measure {name!r} in this comparison; it has {known}")
        return found[name]

    @property
    def title(self) -> str:
        """Names of both versions, or of the one version of a noise floor."""
        return f"{self.old} → {self.new}" if self.new else self.old

    def verdict(self) -> dict[str, list[str]]:
        """The findings in sentences, by measure."""
        from churn_compare.verdict import sentences

        return {m.name: list(sentences(m)) for m in self.measures}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VersionsResult(Display):
    """Every version against every other, and every update on its own.

    Attributes:
        versions: versions, oldest first.
        examples: number of examples that all versions have.
        level: confidence level of all intervals, 0.95 for 95 %.
        accuracy: accuracy of each version; empty without labels.
        churn: `[V, V]` share of examples whose predicted class differs, mean over pairs
            of runs; on the diagonal between runs of one version, NaN with one run.
            Versions between which every step is `paired` are compared run by run.
        negative_flip_rate: `[V, V]` share of examples that are right in the row's
            version and wrong in the column's; None without labels.
        relative_negative_flip_rate: `[V, V]` relative NFR; 1 for independent errors.
        ambiguity: share of examples to which some version gives another class than the
            first run of the last version.
        discrepancy: largest share of examples to which a single version does.
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
    def title(self) -> str:
        """Names of the first and the last version."""
        return f"{self.names[0]} → {self.names[-1]}"

    def verdict(self) -> list[str]:
        """The findings in sentences."""
        from churn_compare.verdict import versions_sentences

        return list(versions_sentences(self))

    @property
    def labelled(self) -> bool:
        """True if there were labels."""
        return self.negative_flip_rate is not None

    @property
    def gates(self) -> tuple[GateOutcome, ...]:
        """Outcomes of the gates of all steps."""
        return tuple(outcome for step in self.steps for outcome in step.gates)

    def step_sum(self, name: str) -> float:
        """Sum of a quantity over the steps; an example may flip and flip back."""
        return float(sum(step[name].value for step in self.steps))

    def suites(self) -> list[tuple[str, Sequence[GateOutcome]]]:
        """Names of the steps with their gates."""
        return [suite for step in self.steps for suite in step.suites()]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; undefined numbers are None."""
        found = super().to_dict() | {"versions": list(self.names)}
        found["steps"] = [step.to_dict() for step in self.steps]
        del found["whole"]
        return found | {"first_to_last": self.whole.to_dict()}

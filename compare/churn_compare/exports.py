"""A result for other programs: JUnit XML and the rows of a data frame."""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from churn_compare.escaping import printable
from churn_compare.result import GateOutcome, Group, Interval


def junit(suites: Iterable[tuple[str, Sequence[GateOutcome]]]) -> str:
    """JUnit XML: a suite for each update, with a test case for each gate."""
    # Elements and attributes are those of the Ant task's schema, in its order: the
    # readers of GitLab, Jenkins and GitHub's actions take these and ignore others.
    root = ElementTree.Element("testsuites")
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for number, (title, gates) in enumerate(suites):
        name = printable(title)
        states = [gate.state for gate in gates]
        counts = {
            "tests": max(len(gates), 1),
            "failures": states.count("fail"),
            "errors": 0,
            "skipped": states.count("inconclusive"),
        }
        fixed = {"package": "churn_jax", "id": number, "hostname": "localhost"}
        fixed |= {"name": name, "timestamp": now, "time": 0}
        suite = _element(root, "testsuite", fixed | counts)
        ElementTree.SubElement(suite, "properties")
        if not gates:
            _case(suite, name, "compared, without conditions")
        for gate in gates:
            case = _case(suite, name, gate.gate)
            line = printable(gate.line)
            if gate.state == "fail":
                about = {"message": line, "type": "gate"}
                _element(case, "failure", about).text = line
            elif gate.state == "inconclusive":
                _element(case, "skipped", {"message": line})
        lines = [printable(gate.line) for gate in gates]
        ElementTree.SubElement(suite, "system-out").text = "\n".join(lines)
        ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _element(above: ElementTree.Element, tag: str, attributes: Mapping[str, Any]):
    texts = {name: str(value) for name, value in attributes.items()}
    return ElementTree.SubElement(above, tag, texts)


def _case(suite: ElementTree.Element, title: str, name: str) -> ElementTree.Element:
    about = {"classname": title, "name": printable(name), "time": 0}
    return _element(suite, "testcase", about)


def rows_of_update(
    about: Mapping[str, Any],
    examples: int,
    quantities: Mapping[str, Interval],
    groups: Iterable[Group],
) -> Iterator[dict[str, Any]]:
    """A row for each quantity, of all examples and of every group."""
    parts = [("", "", examples, quantities)]
    parts += [(of.grouping, of.name, of.examples, of.quantities) for of in groups]
    for grouping, group, count, numbers in parts:
        where = {"grouping": grouping, "group": group, "examples": count}
        for name, found in numbers.items():
            ends = {"value": found.value, "low": found.low, "high": found.high}
            yield {**about, **where, "quantity": name, **ends}

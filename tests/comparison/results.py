"""Comparisons of random predictions, and a parser that checks their pages."""

import functools
from html.parser import HTMLParser

import numpy as np

from churn_jax.comparison.compare import compare_pair
from churn_jax.comparison.display import CompareResult
from churn_jax.comparison.gates import Gate
from churn_jax.comparison.result import Interval
from tests.comparison.random_pairs import pair_of, random_logits

NAN = float("nan")
NONE = Interval(NAN, NAN, NAN)
GATES = (Gate("churn", 0.05), Gate("churn", 0.99, "max", "bound"))


@functools.cache
def result_of(
    *,
    classes=10,
    examples=2000,
    runs=1,
    labelled=True,
    scored=True,
    names=None,
    sliced=True,
    gates=GATES,
) -> CompareResult:
    """A version against one that is more accurate and too sure of itself."""
    labels, old, new = random_logits(0, (runs, runs), examples, classes)
    new = 2 * (new + 0.5 * np.eye(classes, dtype=np.float32)[labels])
    if not scored:
        old, new = old.argmax(-1), new.argmax(-1)
    regions = np.array([f"region {i * 7 % 5}" for i in range(examples)])
    pair, _ = pair_of(
        old,
        new,
        labels if labelled else None,
        class_names=names or tuple(f"class {c}" for c in range(classes)),
        slices={"region": regions} if sliced else {},
        ids=np.array([f"image-{i:05}" for i in range(examples)]),
    )
    return compare_pair(pair, gates=gates, resamples=100)


class Page(HTMLParser):
    """Checks nesting; collects tags, attributes, text and the rows of tables."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.headings, self.tables = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append(0)
        elif tag in ("td", "th"):
            self.tables[-1][-1] += 1
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)

    def of(self, name):
        """Values of an attribute, in the order of the page."""
        return [value for attribute, value in self.attributes if attribute == name]

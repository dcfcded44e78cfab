"""Ribbons are as wide as they have examples, whatever the classes are called."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_compare.flow_diagram import MOST, RIBBONS, SLOT, flow_diagram
from churn_compare.result import Flow
from tests.results import NAN, result_of

SVG = "{http://www.w3.org/2000/svg}"


def ribbons(svg):
    """Title, left and right end as `(y, height)`, and fill of each ribbon."""
    found = []
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is None:
            continue  # of the pattern
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))]
        _, y0, _, _, _, _, _, y1, bottom1, *_, bottom0 = numbers
        ends = (y0, bottom0 - y0), (y1, bottom1 - y1)
        found.append((title.text, *ends, path.get("fill")))
    return found


def texts(svg):
    elements = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return ["".join(element.itertext()) for element in elements]


def flow_of(classes, examples=6000, **kind):
    return result_of(classes=classes, examples=examples, scored=False, **kind).flow


def test_two_classes_by_hand():
    flow = Flow(("cat", "dog"), ("dog", "cat"), (6.0, 4.0), (5.0, 0.0), (1.0, 3.0))
    svg = flow_diagram(flow, "first")
    hatched, green, grey = "url(#first-hatched)", "#009E73", "#8C8C8C"
    assert [
        (title, round(left[1], 1), fill) for title, left, _, fill in ribbons(svg)
    ] == [
        ("cat → dog: 5 examples, right before, wrong now", 0.5 * RIBBONS, hatched),
        ("cat → dog: 1 example, wrong before, right now", 0.1 * RIBBONS, green),
        ("dog → cat: 3 examples, wrong before, right now", 0.3 * RIBBONS, green),
        ("dog → cat: 1 example, wrong before and now", 0.1 * RIBBONS, grey),
    ]
    pattern = ElementTree.fromstring(svg).find(f".//{SVG}pattern")
    assert pattern.get("id") == "first-hatched"
    assert texts(svg).count("6, 5 worse") == 2  # leaving cat, arriving at dog
    assert texts(svg).count("4, 0 worse") == 2
    assert "not drawn" not in svg


@pytest.mark.parametrize("classes", [2, 12, 13, 60])
def test_widths_add_up_and_ribbons_of_a_class_do_not_overlap(classes):
    flow = flow_of(classes)
    svg = flow_diagram(flow)
    found = ribbons(svg)
    for side in (1, 2):
        widths = sum(ribbon[side][1] for ribbon in found)
        assert widths == pytest.approx(RIBBONS, rel=0.03)  # each is rounded to 0.1
        ends = sorted(ribbon[side] for ribbon in found)
        for (y, tall), (below, _) in itertools.pairwise(ends):
            assert below >= y + tall - 0.11
    names = set(flow.old), set(flow.new)
    assert svg.count("<rect x=") == sum(min(MOST, len(side)) for side in names)


def test_what_goes_between_the_smallest_classes_is_counted_in_words():
    flow = flow_of(40, 9000)
    svg = flow_diagram(flow)
    (hidden,) = (t for t in texts(svg) if t.startswith("not drawn"))
    counted = float(re.search(r"[\d,]+", hidden).group().replace(",", ""))
    titles = [re.search(r": ([\d,.]+) example", title) for title, *_ in ribbons(svg)]
    drawn = sum(float(found.group(1).replace(",", "")) for found in titles)
    assert counted + drawn == sum(flow.examples)
    assert sum(re.fullmatch(r"(\d+ others)\1", t) is not None for t in texts(svg)) == 2


def test_names_keep_their_distance_and_stay_inside():
    root = ElementTree.fromstring(flow_diagram(flow_of(40, 9000)))
    height = float(root.get("viewBox").split()[3])
    for anchor in ("end", None):
        ys = [
            float(t.get("y"))
            for t in root.iter(f"{SVG}text")
            if t.find(f"{SVG}title") is not None and t.get("text-anchor") == anchor
        ]
        assert len(ys) == MOST
        assert np.diff(ys).min() >= SLOT - 0.11
        assert max(ys) < height


def test_without_labels_changes_are_only_changes():
    svg = flow_diagram(flow_of(3, 200, labelled=False))
    assert "wrong" not in svg and "worse" not in svg
    assert "changed" in texts(svg)
    assert flow_diagram(Flow((), (), (), (), ())) == ""


def test_names_of_any_kind_are_escaped_and_cut_and_whole_in_a_title():
    evil = "<b>&\"' " + "飛行機" * 9
    svg = flow_diagram(Flow((evil,), ("_$x$",), (3.0,), (NAN,), (NAN,)))
    root = ElementTree.fromstring(svg)
    assert evil in [title.text for title in root.iter(f"{SVG}title")]
    assert "<b>&\"' 飛行機…" in [text.text for text in root.iter(f"{SVG}text")]


def test_means_over_pairs_of_runs_leave_no_ribbon_of_rounding_errors():
    third = 1 / 3
    flow = Flow(("a",), ("b",), (3 * third + 1e-12,), (2 * third,), (third,))
    assert len(ribbons(flow_diagram(flow))) == 2

"""Ribbons are as wide as they have examples, whatever the classes are called."""

import itertools
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from churn_jax.comparison.flow_diagram import MOST, RIBBONS, SLOT, flow_diagram
from churn_jax.comparison.result import Flow
from tests.comparison.results import fake_result

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
        found.append((title.text, (y0, bottom0 - y0), (y1, bottom1 - y1)))
        assert path.get("fill")
    return found


def texts(svg):
    return [
        "".join(t.itertext()) for t in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def test_two_classes_by_hand():
    flow = Flow(("cat", "dog"), ("dog", "cat"), (6.0, 4.0), (5.0, 0.0), (1.0, 3.0))
    svg = flow_diagram(flow)
    assert [(title, round(left[1], 1)) for title, left, _ in ribbons(svg)] == [
        ("cat → dog: 5 examples, right before, wrong now", 0.5 * RIBBONS),
        ("cat → dog: 1 example, wrong before, right now", 0.1 * RIBBONS),
        ("dog → cat: 3 examples, wrong before, right now", 0.3 * RIBBONS),
        ("dog → cat: 1 example, wrong before and now", 0.1 * RIBBONS),
    ]
    shown = texts(svg)
    assert shown.count("6, 5 worse") == 2  # leaving cat, arriving at dog
    assert shown.count("4, 0 worse") == 2
    assert "not drawn" not in svg


@pytest.mark.parametrize("classes", [2, 5, 12, 13, 60])
def test_widths_add_up_and_ribbons_of_a_class_do_not_overlap(classes):
    flow = fake_result(classes=classes, examples=6000).flow
    svg = flow_diagram(flow)
    found = ribbons(svg)
    for side in (1, 2):
        assert sum(r[side][1] for r in found) == pytest.approx(RIBBONS, abs=0.1 * 400)
        ends = sorted(r[side] for r in found)
        for (y, tall), (below, _) in itertools.pairwise(ends):
            assert below >= y + tall - 0.11  # rounded to 0.1
    names = set(flow.old), set(flow.new)
    assert svg.count("<rect x=") == sum(min(MOST, len(side)) for side in names)
    drawn = sum(r[1][1] for r in found)
    np.testing.assert_allclose(drawn, RIBBONS, rtol=0.02)


def test_what_goes_between_the_smallest_classes_is_counted_in_words():
    flow = fake_result(classes=300, examples=20_000).flow
    svg = flow_diagram(flow)
    (hidden,) = (t for t in texts(svg) if t.startswith("not drawn"))
    counted = float(re.search(r"[\d,]+", hidden).group().replace(",", ""))
    drawn = sum(
        float(re.search(r": ([\d,.]+) example", title).group(1).replace(",", ""))
        for title, _, _ in ribbons(svg)
    )
    assert counted + drawn == sum(flow.examples)
    assert sum(re.fullmatch(r"(\d+ others)\1", t) is not None for t in texts(svg)) == 2


def test_names_keep_their_distance_and_stay_inside():
    svg = flow_diagram(fake_result(classes=40, examples=9000).flow)
    root = ElementTree.fromstring(svg)
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


def test_negative_flips_are_hatched_as_well_as_coloured():
    svg = flow_diagram(fake_result(classes=3).flow, "first")
    root = ElementTree.fromstring(svg)
    for path in root.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None:
            hatched = path.get("fill") == "url(#first-hatched)"
            assert hatched == ("right before, wrong now" in title.text)
    assert root.find(f".//{SVG}pattern").get("id") == "first-hatched"


def test_without_labels_changes_are_only_changes():
    svg = flow_diagram(fake_result(labelled=False).flow)
    assert "wrong" not in svg and "worse" not in svg
    assert "changed" in texts(svg)


def test_no_change_gives_no_diagram():
    assert flow_diagram(Flow((), (), (), (), ())) == ""


def test_names_of_any_kind_are_escaped_cut_and_kept_whole_beside():
    evil = "<b>&\"' " + "飛行機" * 9
    nan = (math.nan,)
    svg = flow_diagram(Flow((evil,), ("_$x$",), (3.0,), nan, nan))
    root = ElementTree.fromstring(svg)
    titles = [t.text for t in root.iter(f"{SVG}title")]
    assert evil in titles
    assert "<b>&\"' 飛行機…" in [t.text for t in root.iter(f"{SVG}text")]


def test_means_over_pairs_of_runs_leave_no_ribbon_of_rounding_errors():
    third = 1 / 3
    flow = Flow(("a",), ("b",), (3 * third + 1e-12,), (2 * third,), (third,))
    assert len(ribbons(flow_diagram(flow))) == 2

"""Rules that serve an old and a new version together with fewer negative flips."""

import dataclasses
import itertools
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy import optimize, special

from churn_compare.comparison import compare_pair, read_lines
from churn_compare.display import CompareResult, Display
from churn_compare.documents import Document, Section, Table, Text
from churn_compare.estimates import all_examples
from churn_compare.example_ids import PredictionsError, check_choice, some
from churn_compare.example_numbers import class_numbers
from churn_compare.gates import Gating, as_gates, check_share, limit_of, waivers_of
from churn_compare.groups import NO_VALUE
from churn_compare.number_text import count_text, remark, share_text, with_range
from churn_compare.pair import Pair, Scanned
from churn_compare.pair import Table as Side
from churn_compare.reading.account import settle
from churn_compare.reading.class_alignment import class_doubts
from churn_compare.reading.join import read_pair
from churn_compare.reading.labels import as_names
from churn_compare.reading.sides import same_file
from churn_compare.report import composed
from churn_compare.result import GateOutcome, Interval, Waiver
from churn_compare.scanning import scan
from churn_compare.stored_logits import StoredLogits
from churn_compare.tables import number_cell

RuleKind = Literal["new", "blend", "surer", "keep"]
WEIGHTS = tuple(k / 20 for k in range(1, 20))
_GROUPS, _LEAST = 10, 20  # most groups; changed examples that each needs
_BLOCK = 1 << 20  # numbers at a time
_IN_MEMORY = 1 << 28  # bytes of scores
_FITTED = 20_000  # rows on which temperatures are fitted
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule that serves the old or the new version, example by example.

    Attributes:
        kind: "new" serves the new version; "blend" the mean of both versions'
            log-probabilities; "surer" the new version where its top probability
            exceeds the old one's by `margin`; "keep" the old version on some groups.
        weight: weight of the old version in a blend, from 0 to 1.
        margin: least difference of top probabilities, new minus old.
        temperatures: temperatures of the old and the new version, which divide their
            logits.
        column: column of the groups that keep the old version; "" for the classes
            that the new version predicts.
        groups: values of `column`, or names of classes, that keep the old version.
        class_names: names of the classes, in the order of the logits; () for numbers.
        known: all values of `column` in the validation examples; () if not recorded.
    """

    kind: RuleKind = "new"
    weight: float = 0.0
    margin: float = 0.0
    temperatures: tuple[float, float] = (1.0, 1.0)
    column: str = ""
    groups: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def __post_init__(self):
        check_choice("kind", self.kind, get_args(RuleKind))
        if not 0 <= self.weight <= 1 or not np.isfinite(self.margin):
            raise ValueError("weight must lie between 0 and 1, and margin be finite")
        for name in ("groups", "class_names", "known"):
            of = getattr(self, name)
            if not isinstance(of, tuple) or not all(isinstance(v, str) for v in of):
                raise ValueError(f"{name} must be several texts; got {of!r}")
        of = self.temperatures
        if len(of) != 2 or not all(0 < t < np.inf for t in of):
            raise ValueError(f"temperatures must be two numbers above 0; got {of}")

    @property
    def text(self) -> str:
        """The rule as a part of a sentence."""
        old, new = 100 * self.weight, 100 - 100 * self.weight
        surer = f"where it is surer by {self.margin:.3g}"
        groups = ", ".join(group or NO_VALUE for group in self.groups)
        where = f"{self.column or 'predicted class'} {groups}"
        return {
            "blend": f"{old:.0f} % old and {new:.0f} % new log-probabilities",
            "surer": f"the new version {surer}, else old",
            "keep": f"the old version on {where}, else new",
            "new": "the new version alone",
        }[self.kind]

    def to_json(self) -> str:
        """The rule as JSON text, which `load` reads from a file."""
        fields = {"format": _FORMAT} | dataclasses.asdict(self)
        return json.dumps(fields, indent=2) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Rule":
        """Reads a rule from a file with the text of `to_json`.

        Raises:
            PredictionsError: if the file is not such a rule.
        """
        try:
            fields = json.loads(Path(path).read_bytes())
            if fields.pop("format") != _FORMAT:
                raise ValueError("another format")
            lists = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
            return cls(**fields | lists)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PredictionsError(
                f"{path}: this is not a rule that `repair` wrote ({error})"
            ) from error


def apply(
    rule: Rule,
    old_logits: np.ndarray,
    new_logits: np.ndarray,
    groups: Sequence[str] | np.ndarray | None = None,
) -> np.ndarray:
    """Log-probabilities that a rule serves.

    Args:
        rule: rule from `repair` or `Rule.load`.
        old_logits: `[N, C]` logits of the old version, classes as in `repair`.
        new_logits: `[N, C]` logits of the new version.
        groups: `[N]` values of `rule.column`, for a rule that has one; missing ones are
            "", None or NaN.

    Returns:
        `[N, C]` normalised log-probabilities, float32; a logit of -inf counts as 100
        below the highest.

    Raises:
        ValueError: if shapes differ, logits are NaN or infinite, groups are missing, or
            those of several examples are all values that `repair` has not seen.

    Example:
        >>> rule = Rule("blend", weight=0.5)
        >>> served = apply(rule, np.array([[4.0, 0.0]]), np.array([[0.0, 1.0]]))
        >>> served.argmax(-1).tolist()
        [0]
    """
    old, new = np.asarray(old_logits), np.asarray(new_logits)
    if old.shape != new.shape or old.ndim != 2:
        raise ValueError(f"logits must both be [N, C]; got {old.shape} and {new.shape}")
    old, new = map(_log_softmax, (old, new), rule.temperatures)
    if np.isnan(old).any() or np.isnan(new).any():
        raise ValueError("logits must not be NaN or infinite; only -inf is allowed")
    if rule.kind == "blend":
        return _log_softmax(rule.weight * old + (1 - rule.weight) * new)
    if rule.kind == "surer":
        keep = np.exp(new.max(axis=-1)) - np.exp(old.max(axis=-1)) < rule.margin
    elif rule.kind == "keep":
        keep = _kept(rule, new.argmax(axis=-1), groups)
    else:
        return new
    return np.where(keep[:, None], old, new)


def _kept(rule: Rule, predicted: np.ndarray, groups: Any) -> np.ndarray:
    """True for examples that keep the old version, by group or new class."""
    if not rule.column:
        names = rule.class_names or [str(c) for c in range(int(predicted.max()) + 1)]
        return np.isin(np.array(names)[predicted], rule.groups)
    if groups is None:
        raise ValueError(f"this rule needs the groups of {rule.column!r}, [N]")
    if len(groups) != len(predicted):
        raise ValueError(f"groups must be [{len(predicted)}]; got {len(groups)}")
    found = as_names(groups, "groups").to_pylist()
    # One request alone may be the first of a new group.
    if rule.known and len(found) > 1 and not {*found} & {*rule.known, ""}:
        raise ValueError(
            f"{rule.column} is {some([*dict.fromkeys(found)])} here and was "
            f"{some(rule.known)} in what repair read; give its values as they are there"
        )
    return np.isin(found, as_names(rule.groups, "groups").to_pylist())


def _log_softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    # With -inf, the blend of versions that are certain of other classes would be NaN.
    least = logits.max(axis=-1, keepdims=True) - 100
    logits = np.where(logits == -np.inf, least, logits)
    wide = logits.astype(np.float32) / np.float32(temperature)
    return wide - special.logsumexp(wide, axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A rule and its numbers on the validation examples."""

    rule: Rule  # rule that is served
    churn: float  # share of examples whose prediction differs from the old version's
    accuracy: float  # share of right predictions
    negative_flip_rate: float  # right in the old version, wrong as served
    # Change of accuracy against the new version, minus its standard error.
    least_change: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class RepairResult(Display):
    """The result of `repair`; a notebook and a terminal show it as a report."""

    rule: Rule  # the rule chosen on the validation examples
    # Rules that were tried, with their numbers on validation.
    candidates: tuple[Candidate, ...]
    # Comparison of the old and the new version on the test examples.
    shipped: CompareResult
    served: CompareResult  # comparison of the old version and what the rule serves
    flips_avoided: Interval  # fall of the rate of negative flips, shipped minus served
    accuracy_change: Interval  # accuracy as served minus that of the new version
    p: float  # p-value of equal accuracy as served and of the new version
    both: float  # share of the test examples that need the predictions of both versions
    validation: int  # number of validation examples
    notes: tuple[str, ...]  # sentences about how validation was read and joined

    @property
    def gates(self) -> tuple[GateOutcome, ...]:
        """Outcomes of the gates for what is served, on the test examples."""
        return self.served.gates

    @property
    def level(self) -> float:
        """Confidence level of the intervals."""
        return self.served.level

    @property
    def title(self) -> str:
        """Names of both versions."""
        return f"{self.shipped.title}, repaired"

    def verdict(self) -> list[str]:
        """Sentences on the effect, the test and the cost of the rule."""
        both = self.shipped["negative_flip_rate"], self.served["negative_flip_rate"]
        before, after = (with_range(of, "share") for of in both)
        if self.rule.kind == "new":
            said = [
                "No rule has fewer negative flips at the accuracy of the new version: "
                f"serve that one alone. {before} of the test examples are right before "
                "and wrong now."
            ]
        else:
            fall = with_range(self.flips_avoided, "points", self.level)
            cost = f"{share_text(self.both)} of the examples run both versions"
            if self.rule.column:
                cost = "an example runs one version, by its group"
            said = [
                f"Serve {self.rule.text}: {after} of the test examples are right "
                f"before and wrong now, instead of {before} with the new version "
                "alone.",
                f"The rate of negative flips falls by {fall.replace('+', '')}; "
                f"accuracy changes by {with_range(self.accuracy_change, 'points')} "
                "against the new version.",
                f"Both versions are kept in service: {cost}.",
            ]
        tried = f"{len(self.candidates)} rules were tried on the validation examples"
        return [*said, f"{tried}; only this one was applied to the test examples."]

    def document(self, command: str = "") -> Document:
        """The report, with the command under its title."""
        names = ("churn", "negative_flip_rate", "positive_flip_rate", "accuracy_gain")
        both = {"The new version alone": self.shipped, "As served": self.served}
        rows = [
            (heading, *(number_cell(of[name], name) for name in names))
            for heading, of in both.items()
        ]
        heads = ("On the test examples", "Churn", "NFR", "PFR")
        test = Table((*heads, "Accuracy change, points"), rows, kind="compare")
        front = []
        for of in frontier(self.candidates):
            shares = of.churn, of.negative_flip_rate, of.accuracy
            front.append((of.rule.text, *map(share_text, shares)))
        tried = Table(("Served", "Churn", "NFR", "Accuracy"), front, kind="compare")
        what = "No other rule that was tried has fewer flips at the same accuracy."
        tried = [Text(what, "soft"), tried]
        parts = [
            Section("The update as served", [test]),
            Section("Rules on validation", tried, detail="summary"),
        ]
        count = f"{count_text(self.served.examples)} examples"
        notes = dict.fromkeys((*self.shipped.read, *map(remark, self.shipped.notes)))
        more = [remark(f"Validation: {of}") for of in self.notes if of not in notes]
        facts = {"Validation": f"{count_text(self.validation)} examples", "Test": count}
        about = "; ".join(f"{name}: {of}" for name, of in facts.items())
        return composed(self, parts, [*notes, *more], facts, command, about=about)


def repair(
    old: Any,
    new: Any,
    *,
    validation: tuple[Any, Any],
    by: Sequence[str] = (),
    gates: Gating = (),
    waivers: Sequence[Waiver] = (),
    loss: float | str = 0.0,
    level: float = 0.95,
    **reading: Any,
) -> RepairResult:
    """Chooses a rule to serve two versions together; compares it on test examples.

    The candidates are blends of both versions' log-probabilities with 19 weights, "the
    new version only where it is surer" with 19 margins, both after temperature scaling
    of each version, and the old version on the groups and predicted classes where the
    update loses most. Among the rules whose accuracy on the validation examples, minus
    one standard error, is at least that of the new version, the one with the fewest
    negative flips is chosen. Only this rule is applied to the test examples, so its
    intervals and gates are those of a rule that was fixed in advance.

    Args:
        old: test predictions of the version in use, with labels, as in `compare`.
        new: test predictions of the version that is to replace it.
        validation: old and new predictions of other examples, used only to choose.
        by: columns of the versions' own files whose values may keep the old version.
        gates: conditions on what is served, as in `compare`.
        waivers: as in `compare`.
        loss: accuracy that a rule may lose against the new version on validation.
        level: confidence level of the intervals.
        **reading: `kind`, `labels` (of all examples of both), `id_column`,
            `label_column`, `prediction_column`, `class_map`, `on_missing` and `confirm`
            as in `compare`.

    Raises:
        PredictionsError: if predictions cannot be read or joined, or there are no
            labels, several runs on a side, or the same examples in both splits.
        GateError: if a gate is invalid.
    """
    wanted, allowed = as_gates(gates), limit_of(loss, "loss", "accuracy_gain")
    check_share(allowed, "loss")
    if len(validation) != 2:
        raise ValueError("repair takes --validation OLD_V NEW_V, two files")
    chosen_on, test = (
        _checked(read_pair(*sides, by=by, **reading))
        for sides in (validation, (old, new))
    )
    if chosen_on.old.ids is not None and test.old.ids is not None:
        if len(twice := np.intersect1d(chosen_on.ids, test.ids)):
            raise PredictionsError(
                f"{len(twice)} examples are in the validation and in the test files, "
                f"for example {twice[0]}; a rule must be tested on other examples"
            )
    elif any(a is b or same_file(a, b) for a, b in zip(validation, (old, new))):
        raise PredictionsError(
            "the validation files are the test files; a rule must be tested on other "
            "examples"
        )
    both = "the validation and the test predictions"
    if chosen_on.scored != test.scored:
        raise PredictionsError(f"scores must be in both {both}, or in neither")
    classes = [(of.classes, of.class_names) for of in (chosen_on, test)]
    if chosen_on.scored and classes[0] != classes[1]:
        raise PredictionsError(f"{both} have different classes")
    confirm, found = reading.get("confirm", ()), scan(chosen_on)
    said = settle(class_doubts(chosen_on, found), confirm)
    rule, candidates = _choose(chosen_on, found, allowed)
    shared: dict = {"gates": wanted, "waivers": waivers_of(gates, waivers)}
    shared |= {"level": level, "confirm": confirm}
    before = scan(test)
    shipped = compare_pair(test, scanned=before, **shared)
    with tempfile.TemporaryFile() as file:
        served = _served(test, before, rule, file)
        after = scan(served)
        result = compare_pair(served, scanned=after, **shared)
    every = all_examples(test.examples, test.clusters, level)
    numbers = class_numbers(Scanned(before.new, after.new), test.labels)
    was_wrong = np.flatnonzero(before.old.predicted[0] != test.labels)
    flips = numbers.gain, numbers.better, numbers.worse
    gain, better, worse = (of.without(was_wrong) for of in flips)
    avoided = every.gain(gain, better, worse)
    two = float(rule.kind in ("blend", "surer"))
    if rule.kind == "keep" and not rule.column:
        two = float(np.mean(_kept(rule, before.new.predicted[0], None)))
    return RepairResult(
        rule=rule,
        candidates=candidates,
        shipped=shipped,
        served=result,
        flips_avoided=avoided.of(0),
        accuracy_change=numbers.change(every).of(0),
        p=float(numbers.p(every)[0]),
        both=two,
        validation=chosen_on.examples,
        notes=(*read_lines(chosen_on), *chosen_on.notes, *said),
    )


def _checked(pair: Pair) -> Pair:
    """The pair, if rules can be chosen or applied there."""
    sides, why = (pair.old, pair.new), ""
    columns = {type(pair.old_columns), type(pair.new_columns)}
    if pair.labels is None:
        what = "not all examples have labels" if pair.partial else "there are no labels"
        why = f"repair chooses by right and wrong predictions, but {what}"
    elif runs := [side for side in sides if len(side.runs) > 1]:
        why = f"{runs[0].name}: {len(runs[0].runs)} runs; give the one that is served"
    elif pair.scored and any(side.decisions is not None for side in sides):
        why = (
            "the files have decisions next to scores, which a blend does not give; "
            "compare them with --kind classes"
        )
    elif pair.scored and columns != {type(None)}:
        why = (
            "blends need scores of the same classes in the same order in both "
            "versions; to keep the old version on some groups only, add a column "
            "prediction to both and --kind classes"
        )
    if why:
        raise PredictionsError(why)
    return pair


def _rows(pair: Pair, side: Side, start: int, stop: int) -> np.ndarray:
    """Logits of some examples of the pair."""
    order = pair.old_rows if side is pair.old else pair.new_rows
    stored = StoredLogits.of(side.values, order)
    out = np.empty((stop - start, side.classes), stored.wide)
    scores = stored.read(0, start, stop, out)
    if side.kind == "probabilities":
        with np.errstate(divide="ignore"):
            scores = np.log(scores)
    return scores


def _blocks(pair: Pair) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Blocks of examples with their old and new logits."""
    rows = max(1, _BLOCK // pair.classes)
    for start in range(0, pair.examples, rows):
        stop = min(start + rows, pair.examples)
        old, new = (_rows(pair, side, start, stop) for side in (pair.old, pair.new))
        yield slice(start, stop), old, new


def _temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the least negative log-likelihood."""

    def nll(log_temperature: float) -> float:
        found = _log_softmax(logits, np.exp(log_temperature))
        # As for probabilities of 0, so that one of them does not decide.
        of_labels = np.maximum(found[np.arange(len(labels)), labels], -100)
        return -float(np.mean(of_labels))

    return float(np.exp(optimize.minimize_scalar(nll, bounds=(-3, 3)).x))


def _choose(
    pair: Pair, found: Scanned, loss: float
) -> tuple[Rule, tuple[Candidate, ...]]:
    """The rule with the fewest negative flips at the accuracy of the new version."""
    old, new, labels = found.old.predicted[0], found.new.predicted[0], pair.labels

    def candidate(rule: Rule, served: np.ndarray) -> Candidate:
        right = served == labels
        lost = (old == labels) & ~right
        net = right.astype(int) - (new == labels)
        least = net.mean() - net.std() / np.sqrt(len(net))
        numbers = (served != old).mean(), right.mean(), lost.mean(), least
        return Candidate(rule, *map(float, numbers))

    names = tuple(pair.class_names or ())
    alone = candidate(Rule(class_names=names), new)
    tried = [alone]
    for rule in _kept_groups(pair, old, new, names):
        groups = pair.slices.get(rule.column)
        tried.append(candidate(rule, np.where(_kept(rule, new, groups), old, new)))
    if pair.scored:
        tried += [candidate(*of) for of in _of_scores(pair, names)]
    # The best of many rules that are equally accurate on these examples would be less
    # accurate on others; the standard error corrects for the choice.
    allowed = [c for c in tried if c is alone or c.least_change >= -loss - 1e-12]
    return frontier(allowed)[0].rule, tuple(tried)


def _of_scores(pair: Pair, names: tuple[str, ...]) -> Iterator[tuple[Rule, np.ndarray]]:
    """Rules that blend or compare scores, with the classes that they serve."""
    rows = np.linspace(0, pair.examples - 1, min(pair.examples, _FITTED)).astype(int)
    some = pair.at(np.unique(rows))
    assert some.labels is not None
    a, b = (
        _temperature(_rows(some, side, 0, some.examples), some.labels)
        for side in (some.old, some.new)
    )
    start = Rule(temperatures=(a, b), class_names=names)
    blends = [dataclasses.replace(start, kind="blend", weight=w) for w in WEIGHTS]
    served = np.empty((len(blends), pair.examples), np.int32)
    tops = np.empty((2, pair.examples), np.float32)
    classes = np.empty((2, pair.examples), np.int32)
    for at, *logits in _blocks(pair):
        log_probs = [_log_softmax(of, t) for of, t in zip(logits, (a, b), strict=True)]
        for side, of in enumerate(log_probs):
            tops[side, at], classes[side, at] = np.exp(of.max(-1)), of.argmax(-1)
        for k, rule in enumerate(blends):
            of_rule = rule.weight * log_probs[0] + (1 - rule.weight) * log_probs[1]
            served[k, at] = of_rule.argmax(axis=-1)
    yield from zip(blends, served, strict=True)
    changed = classes[0] != classes[1]
    if not changed.any():
        return
    lead = tops[1] - tops[0]
    for margin in np.unique(np.quantile(lead[changed], np.arange(1, 20) / 20)):
        rule = dataclasses.replace(start, kind="surer", margin=float(margin))
        yield rule, np.where(lead < margin, *classes)


def _kept_groups(
    pair: Pair, old: np.ndarray, new: np.ndarray, names: tuple[str, ...]
) -> Iterator[Rule]:
    """Rules that keep the old version on the groups where the update loses most."""
    predicted = np.array(names or [str(c) for c in range(pair.classes)])[new]
    net = (old == pair.labels).astype(int) - (new == pair.labels)
    for column, values in {"": predicted, **pair.slices}.items():
        groups, codes = np.unique(values, return_inverse=True)
        of = {"column": column, "known": tuple(groups.tolist()) if column else ()}
        lost = np.bincount(codes, net)
        enough = np.bincount(codes, old != new) >= _LEAST
        worst = [g for g in np.argsort(-lost) if lost[g] > 0 and enough[g]]
        most = min(len(worst), _GROUPS, len(groups) - 1)  # all would be the old version
        for count in range(1, most + 1):
            kept = tuple(str(groups[g]) for g in worst[:count])
            yield Rule("keep", groups=kept, class_names=names, **of)


def _served(pair: Pair, scanned: Scanned, rule: Rule, file: Any) -> Pair:
    """The pair with what the rule serves in place of the new version."""
    groups, rule = pair.slices.get(rule.column), dataclasses.replace(rule, known=())
    if pair.scored:
        shape = (1, pair.examples, pair.classes)
        if np.prod(shape) * 4 > _IN_MEMORY:
            served = np.memmap(file, np.float32, "w+", shape=shape)
        else:
            served = np.empty(shape, np.float32)
        for at, old, new in _blocks(pair):
            of_rows = None if groups is None else groups[at]
            served[0, at] = apply(rule, old, new, of_rows)
        side = Side("served", "logits", served, class_names=pair.class_names)
    else:
        old, new = scanned.old.predicted, scanned.new.predicted
        if rule.kind == "keep":
            new = np.where(_kept(rule, new[0], groups), old, new)
        names = pair.class_names or tuple(map(str, range(pair.classes)))
        side = Side("served", "classes", new, class_names=names)
    return dataclasses.replace(pair, new=side, new_rows=None, new_columns=None)


def frontier(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates that no other beats in flips and accuracy, fewest flips first."""
    order = sorted(candidates, key=lambda c: (c.negative_flip_rate, -c.accuracy))
    best = itertools.accumulate((of.accuracy for of in order), max, initial=-1.0)
    return [of for of, before in zip(order, best) if of.accuracy > before]

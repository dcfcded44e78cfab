"""Roles of columns and arrays, found by their names."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from churn_compare.example_ids import PredictionsError, canonical, some, twice
from churn_compare.pair import Kind
from churn_compare.reading.class_values import all_numbers, class_number

# Names of columns and arrays for each role, in the spelling of `plain`. All readers (of
# predictions, labels and outcomes) use these lists.
ID = ("id", "ids", "example_id", "example_ids")
LABEL = (
    *("label", "labels", "label_id", "label_ids", "true_label", "true_class"),
    *("y_true", "y_test", "y", "target", "targets", "truth", "ground_truth", "gold"),
    *("gold_label", "actual", "reference", "expected"),
)
OUTPUT = ("output", "outputs")  # a prediction only if the file has no outcomes
PREDICTION = (
    *("prediction", "predictions", "predicted", "predict", "pred", "preds"),
    *("y_pred", "yhat", "y_hat", "predicted_label", "predicted_labels"),
    *("predicted_class", "predicted_classes", "pred_label", "pred_class"),
    *(".pred_class", "prediction_label", "scored_labels", *OUTPUT),
)
CLASS = ("class", "classes")  # the truth if another column is the prediction
RUN = ("run",)
RUNS = (*RUN, "seed", "epoch", "repeat", "sample")  # of outcomes
INPUT = ("input", "prompt", "question", "input_hash")
_USUAL = {*ID, *LABEL, *PREDICTION, *CLASS, *RUN}
_PROBABILITIES = (
    "probabilities probability probs prob probas proba y_prob y_proba pred_proba "
    "predict_proba"
)
SCORES: dict[str, Kind] = {"logits": "logits", "logit": "logits"}
SCORES.update((name, "probabilities") for name in _PROBABILITIES.split())
_PREFIXES: dict[str, Kind] = {"logit_": "logits", "logits_": "logits"}
for _prefix in ("prob_", "proba_", "probability_", "p_"):
    _PREFIXES[_prefix] = "probabilities"
_SURE = {*ID, *LABEL, *PREDICTION, *RUN, *SCORES} - {"y", "actual", "expected"}
OPTIONS = {  # options that name the column of a role
    "id": "--id-column",
    "label": "--label-column",
    "target": "--label-column",
    "prediction": "--prediction-column",
}


class ColumnNames(NamedTuple):
    """Names that a user gives, each for that role only; None means the usual ones."""

    id: str | None = None
    label: str | None = None
    prediction: str | None = None


class ScoreColumns(NamedTuple):
    """One column of scores per class."""

    kind: Kind  # of the scores
    columns: tuple[str, ...]  # names of the columns, in the order of the classes
    class_names: tuple[str, ...] | None  # None where classes have numbers 0 to C - 1
    sure: bool = True  # False if they may be something else: p_value and p_adj

    def check_classes(self) -> None:
        """Refuses a single column, and class numbers other than 0 to C - 1."""
        count, name = len(self.columns), self.columns[0]
        if count == 1:
            raise PredictionsError(
                f"column {name} has scores of one class; there must be a column for "
                f"every class (--kind {self.kind} --prediction-column {name} takes it "
                "for the scores of class 1 of two)"
            )
        if self.class_names is not None and all_numbers(self.class_names):
            lacking = [c for c in range(count) if str(c) not in self.class_names]
            raise PredictionsError(
                "columns of scores must have the class numbers 0 to "
                f"{count - 1} or names; {some(lacking)} missing, {count} columns "
                f"found: {some(self.columns)}"
            )


class Roles(NamedTuple):
    """The column of each role, by the names; None if there is none."""

    id: str | None
    label: str | None
    prediction: str | None  # predicted classes; next to scores, the decisions
    run: str | None
    scores: ScoreColumns | str | None  # a column per class, or one with all scores

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns that have a role."""
        of = self.scores
        scores = of.columns if isinstance(of, ScoreColumns) else (of,)
        return tuple(n for n in (*self[:4], *scores) if n is not None)

    def doubtful(self, kind: Kind | None) -> bool:
        """True if scores next to a prediction column may be something else."""
        scores = self.scores
        if self.prediction is None or scores is None or kind is not None:
            return False
        return isinstance(scores, str) or not scores.sure or len(scores.columns) == 1


def plain(name: str) -> str:
    """A column's name in the spelling of the lists: lower case, no spaces."""
    return "_".join(name.lower().split())


def has_role(name: str) -> bool:
    """True if the name alone, which may begin with #, says what a column holds."""
    name = plain(name)
    return name.lstrip("#_") in _SURE or name.startswith(tuple(_PREFIXES))


def find_roles(
    names: Iterable[str], kind: Kind | None, given: ColumnNames, others: bool = True
) -> Roles:
    """Roles by names; with `others`, all other columns may be the classes' scores."""
    names = list(names)
    chosen = [name for name in given if name is not None]
    if again := twice(chosen):
        raise PredictionsError(f"column {again[0]} is named for two roles")
    free = [name for name in names if name not in chosen]
    usual = [name for name in free if plain(name) in _USUAL]

    def one(known: Sequence[str], own: str | None, what: str) -> str | None:
        return find_column(usual if own is None else names, known, own, what)

    id_name, run = one(ID, given.id, "id"), one(RUN, None, "run")
    prediction = one(PREDICTION, named := given.prediction, "prediction")
    scores = None if kind == "classes" else _scores_named(free, kind)
    of_scores = kind in ("logits", "probabilities")
    classes = one(CLASS, None, "prediction")
    both = classes is not None and prediction is not None
    label = one((*LABEL, *CLASS) if both else LABEL, given.label, "label")
    if classes is not None and prediction is None:
        if label is None and (scores is not None or of_scores):
            raise PredictionsError(
                f"column {classes} next to scores could be the label or the "
                f"prediction; --label-column {classes} or --prediction-column "
                f"{classes} says which (an array of their names is called class_names)"
            )
        prediction = classes
    if named is not None and kind is None and plain(named) in SCORES:
        prediction, scores = None, named
    elif kind is not None and of_scores and (scores is None or named is None):
        left = [n for n in free if n not in (id_name, label, prediction, run)]
        if scores is None and (named or _scores_named(free, None) is None):
            several = others and named is None and len(left) > 1
            scores = _by_class(kind, "", left) if several else prediction
        prediction = None  # with this kind, only the scores are compared
    return Roles(id_name, label, prediction, run, scores)


def score_of_label(
    names: Iterable[str], roles: Roles, given: ColumnNames
) -> tuple[str, str] | None:
    """Label (or class) and score, as Hugging Face pipelines write, or None."""
    of, score = roles.prediction, next((n for n in names if plain(n) == "score"), None)
    if of is not None and (of == given.prediction or plain(of) not in CLASS):
        return None
    if (of is None) == (roles.label is None) or score is None or roles.scores:
        return None
    name = of or roles.label
    return None if name is None else (name, score)


def find_column(
    names: Iterable[str], known: Sequence[str], given: str | None, what: str
) -> str | None:
    """The only column for a role; None without one, an error with several."""
    names = list(names)
    if given is not None:
        if given not in names:
            raise PredictionsError(
                f"there is no {what} column {given!r}; it has {some(names)}"
            )
        return given
    found = [name for name in names if plain(name) in known]
    if len(found) > 1:
        way_out = OPTIONS.get(what, "a new name for the others")
        raise PredictionsError(
            f"{' and '.join(found)} could be the {what} column; {way_out} says "
            "which it is"
        )
    return found[0] if found else None


def _scores_named(names: list[str], kind: Kind | None) -> ScoreColumns | str | None:
    """The columns of scores, one per class, or the one column with all of them."""
    for wanted in (kind,) if kind else ("logits", "probabilities"):
        columns = score_columns(names, wanted)
        if columns is not None and columns.sure and len(columns.columns) > 1:
            return columns
        single = [name for name in names if SCORES.get(plain(name)) == wanted]
        if len(single) > 1:
            raise PredictionsError(
                f"{' and '.join(single)} are both {wanted}; leave one of them out"
            )
        if single:
            return single[0]
        if columns is not None:
            return columns._replace(sure=kind is not None or columns.sure)
    return None


def score_columns(names: Iterable[str], kind: Kind | None) -> ScoreColumns | None:
    """The columns `logit_<class>`, `prob_<class>` and the like."""
    of: dict[str, list[str]] = {prefix: [] for prefix in _PREFIXES}
    for name in names:
        prefix = "".join(name.strip().lower().partition("_")[:2])
        if prefix in of:
            of[prefix].append(name)
    for wanted in (kind,) if kind else ("logits", "probabilities"):
        sets = {p: of[p] for p, said in _PREFIXES.items() if said == wanted and of[p]}
        if len(sets) > 1 or len(sets.get("p_", ())) == 1:
            sets.pop("p_", None)  # these may be anything, such as p_value
        if len(sets) > 1:
            raise PredictionsError(
                f"columns {' and '.join(f'{prefix}<class>' for prefix in sets)} are "
                "both there; leave one of them out"
            )
        for prefix, columns in sets.items():
            return _by_class(wanted, prefix, columns)
    return None


def _by_class(kind: Kind, prefix: str, columns: list[str]) -> ScoreColumns:
    classes = [canonical(name.strip()[len(prefix) :]) for name in columns]
    by_number = dict(zip(map(class_number, classes), columns, strict=True))
    if by_number.keys() == set(range(len(columns))):
        ordered = tuple(by_number[c] for c in range(len(columns)))
        return ScoreColumns(kind, ordered, None)
    return ScoreColumns(kind, tuple(columns), tuple(classes), prefix != "p_")

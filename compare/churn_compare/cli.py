"""`churn-compare OLD NEW`: what an update changes, and whether it may."""

import dataclasses
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import tyro
from rich.console import Console
from tyro.constructors import PrimitiveConstructorSpec

from churn_compare.command_line import run, words_of
from churn_compare.escaping import printable
from churn_compare.option_list import read_options

if TYPE_CHECKING:  # -h is there at once
    from churn_compare.display import CompareResult, VersionsResult
    from churn_compare.gates import Gate
    from churn_compare.outcomes import OutcomesResult
    from churn_compare.result import Waiver


PROGRAM = "churn-compare"
DESCRIPTION = (
    "Compares the predictions of two versions of a classifier, whatever trained "
    "them, on the same examples: accuracy, churn, negative and positive flips, "
    "calibration, each with a confidence interval; per class and per slice; the "
    "worst regressions by id. With a folder and no NEW, every version in it against "
    "every other.\n\n"
    "Other models are compared by outcomes, in .jsonl, .csv or .parquet: columns "
    "correct (0 or 1), score or --score-column (numbers), answer (texts), value (with "
    "target), set or ranking (lists); several rows of an id are runs. Logs of "
    "lm-evaluation-harness (samples_*.jsonl or their folder), Inspect (.eval, .json), "
    "lighteval, OpenAI evals and NeMo Gym are read, too.\n\n"
    "Files: .npz, .npy, .csv, .tsv, .parquet, .feather, .json, .jsonl (text also "
    "as .gz), or a folder of Spark's parts, with logits, probabilities or predicted "
    "classes. Columns (and arrays in .npz) are known by name: id; label, "
    "y_true or target; prediction, pred or y_pred; logit_<class> or prob_<class>; run. "
    "A prediction next to scores is the decision: it counts for churn and flips. Ids "
    "join the two sides; without ids the rows must be in the same order.\n\n"
    "Gates: limits may be written 0.02 or 2%. The exit code is 0 if all hold, 1 if "
    "one does not, 4 if none fails but one is inconclusive, 2 for bad input. A gate "
    "file is TOML with the same names and "
    'those of any other quantity, max-nfr = "1%" or max-nfr = {limit = 0.01, on = '
    '"bound"}; tables [slices], [slices.region], [slices.region."north"], '
    '[classes], [classes."7"] hold gates on each group or on one.'
)


def _shown(what: str) -> Any:
    """Metavar of an option, without a hint that it is optional."""
    return tyro.conf.arg(metavar=what, help_behavior_hint="")


# Types that tyro checks by itself. For others, as `Path | None` or `tuple[str, ...]`,
# it imports typeguard, which takes as long as all of tyro.
File = Annotated[Optional[Path], _shown("FILE")]  # noqa: UP045
Limit = Annotated[Optional[str], _shown("LIMIT")]  # noqa: UP045
Name = Annotated[Optional[str], _shown("NAME")]  # noqa: UP045
Count = Annotated[Optional[int], _shown("COUNT")]  # noqa: UP045
Kind = Annotated[
    Optional[Literal["logits", "probabilities", "classes"]],  # noqa: UP045
    _shown("{logits,probabilities,classes}"),
]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class _Several(tuple):
    """Texts after one option."""


Names = Annotated[
    _Several,
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAME ...",
        instance_from_str=_Several,
        is_instance=lambda given: isinstance(given, tuple),
        str_from_instance=list,
    ),
    _shown("NAME ..."),
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
        max_share_changed: outcomes that move by more than the tolerance, at most.
        max_share_worse: outcomes that are worth less, at most.
        min_score_change: new mean minus old, at least; may be negative.
        max_score_change: the same, at most, of scores of which less is better.
        on: whether these limits judge the estimate, the bound of its interval that is
            nearer to failing, or the whole interval, which may be inconclusive; a gate
            file has its own. Default: estimate.
        min_examples: slices and classes with fewer examples are not judged.
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
    max_share_changed: Limit = None
    max_share_worse: Limit = None
    min_score_change: Limit = None
    max_score_change: Limit = None
    on: Annotated[
        Optional[Literal["estimate", "bound", "interval"]],  # noqa: UP045
        _shown("{estimate,bound,interval}"),
    ] = None
    min_examples: Count = None

    def read(self) -> "tuple[Gate, ...]":
        """The gates of the file and of the options."""
        from churn_compare import gate_file, gates

        limits = {
            _option(name): value
            for name, value in vars(self).items()
            if name.startswith(("max_", "min_")) and name != "min_examples"
        }
        settings = {
            name: getattr(self, name)
            for name in ("on", "min_examples")
            if getattr(self, name) is not None
        }
        given = gates.gates_by_name(limits, **settings)
        if settings and not given:
            option = _option(next(iter(settings)))
            raise ValueError(f"{option} is for limits given as options; there are none")
        return gates.combined(
            gate_file.read_gates(self.gates) if self.gates else (), given
        )

    def waivers(self) -> "tuple[Waiver, ...]":
        """Those of the gate file."""
        from churn_compare import gate_file

        return gate_file.waivers_of(self.gates) if self.gates else ()


@dataclasses.dataclass(frozen=True)
class Reading:
    """How files are read and joined.

    Attributes:
        kind: what the predictions are, if the file does not tell or has several.
        old_kind: the same for the old side alone.
        new_kind: the same for the new side alone.
        id_column: column or array of ids.
        label_column: column or array of labels, of the file of labels if there is one.
        prediction_column: column or array of predicted classes; with a kind of scores,
            of the scores.
        class_map: file with the new class of each old class (.json, or .csv with
            columns old and new), or "identity" where equal numbers are equal classes.
        on_missing: "intersect" goes on with the examples that both sides have.
        confirm: names of doubts that are right as they are; the refusal names them.
        strip: leave out space around ids and names of classes.
        order: the versions of a folder, oldest first.
    """

    kind: Kind = None
    old_kind: Kind = None
    new_kind: Kind = None
    id_column: Name = None
    label_column: Name = None
    prediction_column: Name = None
    class_map: Annotated[Optional[str], _shown("FILE")] = None  # noqa: UP045
    on_missing: Literal["error", "intersect"] = "error"
    confirm: Names = _Several()
    strip: bool = False
    order: Names = _Several()


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """Groups of examples, and outcomes that are no predicted classes.

    Attributes:
        score_column: columns of numbers to compare.
        lower_is_better: scores of which less is better, where neither the log nor the
            name (loss, perplexity, wer, latency ...) says so.
        grades: what letters or words of a score are worth: A=1 B=0.5 F=0.
        normalize: which differences of answers do not count: of capitals, spaces and
            composed letters (text, the default), also of punctuation and English
            articles (squad), or none.
        by: columns of the files that group the examples, as slices do.
        tolerance: numbers this near count as equal; 5% is relative.
        top: compares the first so many of each ranking, too.
        ignore_inputs: compares examples though their inputs differ.
    """

    score_column: Names = _Several()
    lower_is_better: Names = _Several()
    grades: Names = _Several()
    normalize: Annotated[
        Optional[Literal["text", "squad", "none"]],  # noqa: UP045
        _shown("{text,squad,none}"),
    ] = None
    by: Names = _Several()
    tolerance: Limit = None
    top: Count = None
    ignore_inputs: bool = False


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Options of the comparison.

    Attributes:
        old: predictions of the version in use, or a folder of versions.
        new: predictions of the version that is to replace it.
        labels: file of the right classes, if the predictions hold none.
        slices: file in which every column groups the examples.
        cluster: column of the slices or the predictions that says which examples belong
            together: document, user, conversation.
        equivalent: whether accuracy is shown to change by less, by two one-sided tests;
            a gate file can require it.
        pool: column of the slices that names benchmarks: their accuracy in one number.
        ids: file of ids, for files that hold none.
        gate: conditions on the update.
        reading: how files are read and joined.
        outcomes: groups of examples, and outcomes that are no predicted classes.
        inconclusive: how an inconclusive result counts: exit has the code 4.
        regressions: how many negative flips the page and the JSON list; a terminal and
            Markdown have ten at most.
        level: level of the confidence intervals.
        resamples: number of bootstrap resamples.
        seed: seed of the bootstrap.
        html: write a page.
        json: write all numbers.
        junit: write the conditions as test cases, for a CI.
        github: append the Markdown to the job's summary, $GITHUB_STEP_SUMMARY.
        markdown: write tables for a comment on a pull request.
        full: prints every table, not only the verdict.
        demo: compares two embedded models of the digits and writes churn-demo.html.
        noise: files of identical runs, in place of OLD and NEW: how much they differ.
    """

    old: Annotated[tyro.conf.Positional[Path], _shown("OLD")]
    new: Annotated[
        tyro.conf.Positional[Optional[Path]],  # noqa: UP045
        _shown("[NEW]"),
    ] = None
    labels: File = None
    slices: File = None
    cluster: Name = None
    equivalent: Limit = None
    pool: Name = None
    ids: File = None
    html: File = None
    json: File = None
    junit: File = None
    github: bool = False
    markdown: File = None
    demo: bool = False
    full: bool = False
    noise: Names = _Several()
    gate: tyro.conf.OmitArgPrefixes[Gates] = dataclasses.field(default_factory=Gates)
    reading: tyro.conf.OmitArgPrefixes[Reading] = dataclasses.field(
        default_factory=Reading
    )
    outcomes: tyro.conf.OmitArgPrefixes[Outcomes] = dataclasses.field(
        default_factory=Outcomes
    )
    inconclusive: Literal["exit", "pass", "fail"] = "exit"
    regressions: int = 20
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0


_DEMO = Path(__file__).parent / "demo"
_DEMO_FILES = ("neural_network.npz", "random_forest.npz")
_DEMO_PAGE = "churn-demo.html"
_DEMO_NEXT = """\
Compared were four trainings each of two scikit-learn models on 897 digits.
Next, with the predictions of your own two models and a limit that must hold:
  {program} old.csv new.csv --max-nfr 1% --html report.html
{program} -h says which files and columns are read."""
_COLUMNS = ("id_column", "label_column", "prediction_column")
_OF_BOTH = ("kind", "class_map", "on_missing", "confirm", "strip", *_COLUMNS)
_OF_TWO = ("old_kind", "new_kind")
_OF_CLASSES = ("kind", *_OF_TWO, "prediction_column", "class_map")
_NOT_OF_OUTCOMES = ("labels", "ids", *_OF_CLASSES, "strip", "order")
_OF_OUTCOMES = ("lower_is_better", "grades", "normalize", "tolerance", "top")
_OF_OUTCOMES += ("ignore_inputs",)
_NOT_OF_RUNS = (
    *_NOT_OF_OUTCOMES,
    "slices",
    "by",
    "pool",
    "equivalent",
    "top",
    "ignore_inputs",
    "lower_is_better",
)
_READ = ("old", "new", "labels", "slices", "ids")
_WRITTEN = ("html", "json", "markdown", "junit")
_SUMMARY = "GITHUB_STEP_SUMMARY"  # a file, as GitHub's runners name it


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `churn-compare`; returns its exit code."""
    words, verbose = words_of(argv, PROGRAM)
    if words == ["--version"]:
        from churn_compare import __version__

        print(__version__)
        return 0
    return run(lambda: compare(words, PROGRAM), PROGRAM, verbose)


def compare(argv: Sequence[str], program: str = "churn-jax compare") -> int:
    """Compares, prints, writes the files asked for; returns the exit code."""
    _check_options(argv, program)
    demo = "--demo" in argv
    # The files stand where OLD and NEW would.
    words = [str(_DEMO / name) for name in _DEMO_FILES if demo]
    if "--noise" in argv:
        words = list(argv[argv.index("--noise") + 1 :][:1])
    arguments = read_options(
        Arguments,
        [*words, *_negative_limits(argv)],
        prog=program,
        description=DESCRIPTION,
    )
    if demo and arguments.html is None:
        arguments = dataclasses.replace(arguments, html=Path(_DEMO_PAGE))
    _check_outputs(arguments)
    from churn_compare import array_files, documents

    found = _versions if arguments.new is None else _two
    if arguments.noise:
        found = _noise
    if arguments.new is not None and _of_outcomes(arguments):
        found = _two_outcomes
    # A notebook would get a spinner that stays, or a warning that widgets are missing.
    spinner = Console(
        stderr=True, force_jupyter=False, quiet=not sys.stderr.isatty()
    ).status("Reading and comparing")
    with spinner:
        result = found(arguments)
    documents.print_document(result.terminal(full=arguments.full))
    written = []
    if arguments.html:
        command = f"{program} {shlex.join(argv)}"
        written.append(result.save_html(arguments.html, command=command))
    if arguments.json:
        written.append(result.save_json(arguments.json))
    if arguments.markdown:
        written.append(array_files.write_file(arguments.markdown, result.markdown()))
    if arguments.junit:
        written.append(array_files.write_file(arguments.junit, result.junit()))
    if arguments.github:
        with open(os.environ[_SUMMARY], "a", encoding="utf-8") as summary:
            summary.write(result.markdown())
    if written:
        print(f"\nWritten: {printable(', '.join(map(str, written)))}")
    if demo:
        print(f"\n{_DEMO_NEXT.format(program=program)}")
    counts = arguments.inconclusive if result.state == "inconclusive" else result.state
    return {"pass": 0, "fail": 1, "exit": 4}[counts]


def _check_outputs(arguments: Arguments) -> None:
    """Refuses, before the work, to write over what is read, or twice to one file."""
    from churn_compare.reading import contents

    read = [getattr(arguments, name) for name in _READ]
    read += [arguments.gate.gates, arguments.reading.class_map]
    # `Path.resolve` raises for a loop of links; opening the file then says so.
    taken = {
        os.path.realpath(path): "what is read" for path in read if path is not None
    }
    if arguments.github and not os.environ.get(_SUMMARY):
        raise ValueError(f"--github needs ${_SUMMARY}, which GitHub's runners set")
    for name in _WRITTEN:
        path = getattr(arguments, name)
        if path is None:
            continue
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no ordinary file"
            raise ValueError(f"--{name}: {path} is {what}; name a file")
        if path.name.lower().endswith(contents.ENDINGS):
            raise ValueError(
                f"--{name}: {path} is called like predictions; name it .{name}"
            )
        if os.path.realpath(path) in taken:
            what = taken[os.path.realpath(path)]
            raise ValueError(f"--{name}: {path} would write over {what}; name another")
        taken[os.path.realpath(path)] = f"the file of --{name}"


def _check_options(argv: Sequence[str], program: str) -> None:
    """Refuses an unknown option, which would otherwise count as a file."""
    classes = (Arguments, Gates, Reading, Outcomes)
    fields = {field.name for of in classes for field in dataclasses.fields(of)}
    fields -= {"gate", "reading", "outcomes"}  # whose own fields are options
    known = [_option(name) for name in ("help", *fields)]
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("--") and name.replace("_", "-") not in known:
            from churn_compare import gates

            hint = gates.closest(name, known) or f"{program} -h lists them"
            raise ValueError(f"unknown option {name}; {hint}")


def _negative_limits(argv: Sequence[str]) -> list[str]:
    """Joins `--option -0.5%` with `=`, else -0.5% would be taken for an option."""
    joined: list[str] = []
    for word in argv:
        if re.fullmatch(r"-\.?\d.*", word) and joined and joined[-1].startswith("--"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _shared(arguments: Arguments) -> dict[str, Any]:
    """Arguments that two versions and a folder of them share."""
    names = ("labels", "slices", "ids", "regressions", "level", "resamples", "seed")
    found = {name: getattr(arguments, name) for name in names}
    found["clusters"], found["equivalent"] = arguments.cluster, arguments.equivalent
    found["pool"] = arguments.pool
    found |= {name: getattr(arguments.reading, name) for name in _OF_BOTH}
    found["gates"], found["waivers"] = arguments.gate.read(), arguments.gate.waivers()
    return found


def _two(arguments: Arguments) -> "CompareResult":
    from churn_compare.comparison import compare as compare_two

    _refuse(arguments, ("order",), "is for a folder of versions; here are OLD and NEW")
    reading = vars(arguments.reading)
    only = {name: reading[name] for name in _OF_TWO if reading[name] is not None}
    shared = _shared(arguments) | {"by": arguments.outcomes.by}
    return compare_two(arguments.old, arguments.new, **shared, **only)


def _noise(arguments: Arguments) -> "OutcomesResult":
    from churn_compare.outcomes import noise_floor

    if arguments.new is not None or arguments.gate.read():
        raise ValueError("--noise is about runs of one version: no NEW and no limits")
    _refuse(arguments, _NOT_OF_RUNS, "is for OLD and NEW, not for --noise")
    return noise_floor(*arguments.noise, **_shared_by_outcomes(arguments))


def _of_outcomes(arguments: Arguments) -> bool:
    """Whether outcomes are to be compared; not where classes are spoken of."""
    from churn_compare.outcomes.reading import has_outcomes

    given, reading = arguments.outcomes, arguments.reading
    if given.score_column:
        return True
    of_classes = [getattr(reading, name) for name in _OF_CLASSES]
    if not any(of_classes) and has_outcomes(arguments.old):
        return True
    _refuse(arguments, _OF_OUTCOMES, "is for outcomes; here are predicted classes")
    return False


def _refuse(arguments: Arguments, names: Sequence[str], why: str) -> None:
    """Refuses options that would be without effect."""
    given = vars(arguments) | vars(arguments.reading) | vars(arguments.outcomes)
    for name in names:
        if given[name]:
            raise ValueError(f"{_option(name)} {why}")


def _shared_by_outcomes(arguments: Arguments) -> dict[str, Any]:
    """Arguments that two versions and runs of one share."""
    from churn_compare import gates

    tolerance = arguments.outcomes.tolerance
    return {
        "score_columns": arguments.outcomes.score_column,
        "grades": _grades(arguments.outcomes.grades),
        "normalize": arguments.outcomes.normalize or "text",
        "cluster": arguments.cluster,
        "tolerance": gates.limit_of(tolerance or 0.0, "--tolerance"),
        "relative": (tolerance or "").rstrip().endswith("%"),
        "id_column": arguments.reading.id_column,
        "target_column": arguments.reading.label_column,
        "confirm": arguments.reading.confirm,
        "regressions": arguments.regressions,
        "level": arguments.level,
        "seed": arguments.seed,
    }


def _grades(given: Sequence[str]) -> dict[str, float]:
    """Grades and their numbers, from texts such as `A=1`."""
    found = {}
    for word in given:
        grade, _, worth = word.rpartition("=")
        try:
            found[grade] = float(worth)
        except ValueError:
            grade = ""
        if not grade or not math.isfinite(found[grade]):
            raise ValueError(f"--grades takes A=1 B=0.5 and so on; got {word!r}")
    return found


def _two_outcomes(arguments: Arguments) -> "OutcomesResult":
    from churn_compare import gates
    from churn_compare.outcomes import compare_outcomes

    _refuse(arguments, _NOT_OF_OUTCOMES, "is for predicted classes; here are outcomes")
    given, margin = arguments.outcomes, arguments.equivalent
    return compare_outcomes(
        arguments.old,
        arguments.new,
        slices=arguments.slices,
        by=given.by,
        pool=arguments.pool,
        equivalent=None if margin is None else gates.limit_of(margin, "--equivalent"),
        top=given.top,
        lower_is_better=given.lower_is_better,
        on_missing=arguments.reading.on_missing,
        ignore_inputs=given.ignore_inputs,
        gates=arguments.gate.read(),
        waivers=arguments.gate.waivers(),
        **_shared_by_outcomes(arguments),
    )


def _versions(arguments: Arguments) -> "VersionsResult":
    from churn_compare.outcomes.reading import has_outcomes
    from churn_compare.versions import compare_versions

    if not arguments.old.is_dir():
        raise ValueError(
            f"{arguments.old}: NEW is missing; name two versions, or a folder of them"
        )
    if has_outcomes(arguments.old):
        raise ValueError(f"{arguments.old}: NEW is missing; name two such folders")
    _refuse(arguments, ("by",), "is for OLD and NEW; a folder takes --slices FILE")
    which = (*_OF_TWO, "score_column", *_OF_OUTCOMES)
    _refuse(arguments, which, "is for OLD and NEW, not for a folder")
    order = arguments.reading.order or None
    return compare_versions(arguments.old, **_shared(arguments), order=order)

"""The command `churn-compare OLD NEW`, which compares two versions of a model."""

import contextlib
import dataclasses
import inspect
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import tyro
from rich.console import Console
from tyro.constructors import PrimitiveConstructorSpec

from churn_compare.command_line import run, words_of
from churn_compare.escaping import printable
from churn_compare.option_list import options_of, read_options

PROGRAM = "churn-compare"
# tyro does not wrap lines that begin with a space.
DESCRIPTION = """\
Compares the predictions of two versions of a model on the same examples.
  files      .csv, .tsv, .parquet, .feather, .json, .jsonl, .npz, .npy, folders
             of Spark; logs of lm-eval, Inspect, lighteval, promptfoo and more
  columns    id; label; prediction, or logit_<class>, or prob_<class>; run
  outcomes   correct, score, answer, value, set or ranking, perhaps with target
  exit code  0 all limits hold, 1 one fails, 4 one is inconclusive, 2 bad input
  commands   label draws examples to label, repair serves both versions, size
             estimates how many decide, suite takes two folders; size -h, ..."""
_LABEL = """\
Draws examples that an update changes, for people or judges to label. Labels of a part
of these examples give the rate of negative flips, with an interval."""
_REPAIR = """\
Chooses on validation predictions how to serve both versions together: a blend of their
log-probabilities, the new version only where it is surer, or the old version on some
groups. The rule is then tested on OLD and NEW, which are not used to choose it."""
_SUITE = """\
Compares two folders of results, such as those of lm-eval and lighteval. Files of the
same name are one benchmark. A required benchmark fails if it is missing, if a gate
fails or if it gets worse detectably (Holm over the release)."""
_SIZE = """\
Estimates from OLD and NEW how many examples and runs (or samples of each example) are
needed to decide a limit, or to distinguish the change of the mean from zero."""


def _shown(what: str) -> Any:
    """Metavar of an option, without a hint that it is optional."""
    return tyro.conf.arg(metavar=what, help_behavior_hint="")


# Types that tyro checks itself. For others, such as `Path | None` or `tuple[str, ...]`,
# it imports typeguard, which takes as long as tyro itself.
Side = tyro.conf.Positional[Optional[Path]]  # noqa: UP045
Kind = Optional[Literal["logits", "probabilities", "classes"]]  # noqa: UP045
Answers = Optional[Literal["text", "squad", "none"]]  # noqa: UP045
Equal = Annotated[Answers, _shown("HOW")]
Missing = Annotated[Literal["error", "intersect"], _shown("intersect")]
Inconclusive = Annotated[Literal["exit", "pass", "fail"], _shown("HOW")]
Errors = Optional[Literal["wrong", "drop", "refuse"]]  # noqa: UP045
File = Annotated[Optional[Path], _shown("FILE")]  # noqa: UP045
Map = Annotated[Optional[str], _shown("FILE")]  # noqa: UP045
Limit = Annotated[Optional[str], _shown("X")]  # noqa: UP045
Name = Annotated[Optional[str], _shown("NAME")]  # noqa: UP045
Flag = Annotated[tyro.conf.FlagCreatePairsOff[bool], _shown("")]
Share = Annotated[float, _shown("X")]


class _Several(tuple):
    """Several values of one option."""


Names = Annotated[
    _Several,
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="NAMES",
        instance_from_str=_Several,
        is_instance=lambda given: isinstance(given, tuple),
        str_from_instance=list,
    ),
    _shown("NAMES"),
]


# tyro reads the comments as help. Private classes are options that commands share.
@dataclasses.dataclass(frozen=True)
class _Reading:
    kind: Annotated[Kind, _shown("KIND")] = None  # logits, probabilities or classes
    id_column: Name = None  # column or array of ids
    prediction_column: Name = None  # column or array of predicted classes
    class_map: Map = None  # new class of each old one, or "identity"
    on_missing: Missing = "error"  # compare only the examples that both have
    confirm: Names = _Several()  # doubts to accept, named in error messages


@dataclasses.dataclass(frozen=True)
class _Truth:
    labels: File = None  # file of the true classes, if they are elsewhere
    label_column: Name = None  # column or array of labels or targets


@dataclasses.dataclass(frozen=True)
class _Limits:
    gates: File = None  # gate file (TOML): any limit, slice or class
    max_churn: Limit = None  # largest share of changed predictions, 0.02 or 2%
    max_nfr: Limit = None  # largest negative flip rate (right, then wrong)
    min_accuracy_gain: Limit = None  # smallest gain, new minus old; may be negative


@dataclasses.dataclass(frozen=True)
class _Level:
    level: Share = 0.95  # confidence level of the intervals (0.95)


@dataclasses.dataclass(frozen=True)
class _Files:
    html: File = None  # page with every number and figure
    json: File = None  # all numbers


@dataclasses.dataclass(frozen=True)
class _Reports(_Files):
    junit: File = None  # gates as test cases, for CI
    markdown: File = None  # tables for a comment on a pull request
    full: Flag = False  # every table in the terminal


@dataclasses.dataclass(frozen=True)
class Data(_Reading, _Truth):
    """Files and columns."""

    slices: File = None  # table whose columns group the examples
    by: Names = _Several()  # columns of OLD and NEW that group the examples
    score_column: Names = _Several()  # columns of numbers to compare
    lower_is_better: Names = _Several()  # scores for which lower is better
    grades: Names = _Several()  # numbers of letter grades, such as A=1 B=0.5
    normalize: Equal = None  # text, squad or none: which answers are equal
    tolerance: Limit = None  # distance of equal numbers; 5% is relative
    errors: Annotated[Errors, _shown("HOW")] = None  # errored examples: wrong or drop
    order: Names = _Several()  # versions of a folder, oldest first


@dataclasses.dataclass(frozen=True)
class Gates(_Limits):
    """Conditions."""

    max_slice_nfr: Limit = None  # largest negative flip rate of each slice
    max_excess_churn: Limit = None  # largest churn beyond retraining; needs runs
    max_share_worse: Limit = None  # largest share of outcomes that get worse
    min_score_change: Limit = None  # smallest new mean minus old
    inconclusive: Inconclusive = "exit"  # pass or fail in place of exit code 4


@dataclasses.dataclass(frozen=True)
class Certainty(_Level):
    """Confidence."""

    cluster: Name = None  # column of dependent examples: document, user
    noise: Annotated[Names, _shown("FILES")] = _Several()  # noise of one version
    equivalent: Limit = None  # test that the change is smaller than this
    pool: Name = None  # column of benchmarks, each with the same weight
    any_time: Flag = False  # intervals that hold after every further label


@dataclasses.dataclass(frozen=True)
class Output(_Reports):
    """Output."""

    github: Flag = False  # append the tables of --markdown to the job's summary
    demo: Flag = False  # compare two built-in models (churn-demo.html)


@dataclasses.dataclass(frozen=True)
class _Sides:
    old: Annotated[Side, _shown("OLD")] = None  # predictions in use
    new: Annotated[Side, _shown("NEW")] = None  # predictions to replace them


@dataclasses.dataclass(frozen=True)
class LabelArguments(_Reading, _Sides):
    """Options of `label`."""

    out: File = None  # CSV to fill: label, or better (old, new, neither, both)
    budget: Annotated[int, _shown("N")] = 0  # most examples to draw; 0 for all
    by: Name = None  # column: draw equally many of each value
    blind: Flag = False  # answers as A and B, with the key in a file of its own
    seed: Annotated[int, _shown("N")] = 0  # seed of the order


@dataclasses.dataclass(frozen=True)
class SuiteArguments(_Reports, _Level):
    """Options of `suite`."""

    old: Annotated[Side, _shown("OLD_DIR")] = None  # results in use
    new: Annotated[Side, _shown("NEW_DIR")] = None  # results to replace them
    suite: File = None  # TOML: tier, score, direction and gates of each benchmark
    on_missing: Missing = "error"  # compare only the examples that both have
    confirm: Names = _Several()  # doubts to accept, named in error messages
    errors: Annotated[Errors, _shown("HOW")] = None  # errored examples: wrong or drop


@dataclasses.dataclass(frozen=True)
class RepairArguments(_Files, _Level, _Limits, _Truth, _Reading, _Sides):
    """Options of `repair`."""

    validation: Annotated[Names, _shown("OLD_V NEW_V")] = _Several()  # to choose on
    out: File = None  # JSON of the rule, for `churn_compare.apply`
    by: Names = _Several()  # columns: groups that may keep the old version
    loss: Limit = None  # accuracy that the rule may lose against NEW, as 0.1%


@dataclasses.dataclass(frozen=True)
class SizeArguments(_Files, _Level, _Limits, _Truth, _Reading, _Sides):
    """Options of `size`."""

    change: Limit = None  # change of the mean to detect; else the measured one
    power: Share = 0.8  # probability of a decision
    min_score_change: Limit = None  # smallest new mean minus old
    max_share_worse: Limit = None  # largest share of outcomes that get worse


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Options of the comparison."""

    old: Annotated[Side, _shown("OLD")] = None  # predictions in use, or a folder
    new: Annotated[Side, _shown("[NEW]")] = None  # predictions to replace them
    data: tyro.conf.OmitArgPrefixes[Data] = Data()
    gate: tyro.conf.OmitArgPrefixes[Gates] = Gates()
    certainty: tyro.conf.OmitArgPrefixes[Certainty] = Certainty()
    output: tyro.conf.OmitArgPrefixes[Output] = Output()


_DEMO = Path(__file__).parent / "demo"
_DEMO_NEXT = """\
Four trainings each of two scikit-learn models were compared on 897 digits.
Next, compare the predictions of your own two models, with a limit that must hold:
  {program} old.csv new.csv --max-nfr 1% --html report.html
{program} -h lists the files and columns that are read."""
_FILES_OUT = ("html", "json", "markdown", "junit", "out")
_LIMITED = ("max_", "min_")  # names of limits begin so
_SUMMARY = "GITHUB_STEP_SUMMARY"  # path of a file, set by GitHub's runners

_KINDS = ("kind", "prediction_column", "class_map")
_CLASSES = (*_KINDS, "order")
_OUTCOMES = ("lower_is_better", "grades", "normalize", "tolerance", "errors")
_UPDATE_ONLY = ("labels", "any_time", "slices", "by", "pool", "equivalent")
_UPDATE_ONLY += ("lower_is_better",)
# What is compared, options that would have no effect, and the reason.
_REFUSED = (
    ("noise", (*_CLASSES, *_UPDATE_ONLY), "is for OLD and NEW, not for --noise"),
    ("outcomes", _CLASSES, "is for predicted classes; here are outcomes"),
    ("classes", _OUTCOMES, "is for outcomes; here are predicted classes"),
    ("classes", ("order",), "is for a folder of versions; here are OLD and NEW"),
    ("folder", ("any_time",), "is for OLD and NEW, not for a folder"),
    ("folder", ("by",), "is for OLD and NEW; a folder takes --slices FILE"),
    ("folder", ("score_column", *_OUTCOMES), "is for OLD and NEW, not for a folder"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `churn-compare` and returns its exit code."""
    words, verbose = words_of(argv, PROGRAM)
    return run(lambda: compare(words, PROGRAM), PROGRAM, verbose)


def compare(argv: Sequence[str], program: str = "churn-jax compare") -> int:
    """Compares, prints and writes the output files; returns the exit code."""
    if argv == ["--version"]:
        from churn_compare import __version__

        print(__version__)
        return 0
    name = argv[0] if argv and argv[0] in _COMMANDS else ""
    function, kind, description, needed = _COMMANDS[name]
    command = f"{program} {shlex.join(argv)}"
    if name:
        program, argv = f"{program} {name}", argv[1:]
    else:
        _check_moved(argv)
    arguments = read_options(kind, argv, prog=program, description=description)
    given: dict[str, Any] = {}
    for field, value in vars(arguments).items():
        given |= vars(value) if dataclasses.is_dataclass(value) else {field: value}
    if not all(given[word.strip("-").lower()] for word in needed):
        raise ValueError(f"{program} needs {', '.join(needed)}{_taken(given)}")
    if given.get("demo"):
        if given["old"] is not None:
            raise ValueError("--demo brings its own files; leave OLD and NEW out")
        files = "neural_network.npz", "random_forest.npz"
        given["old"], given["new"] = (_DEMO / name for name in files)
        given["html"] = given["html"] or Path("churn-demo.html")
    _check_outputs(given)
    if name == "label":
        return _label(given, program)
    # In a notebook the spinner would stay, or warn that widgets are missing.
    quiet = not sys.stderr.isatty()
    console = Console(stderr=True, force_jupyter=False, quiet=quiet)
    with console.status("Reading and comparing"):
        if name:
            result = _function(function)(**_settings(given))
        else:
            result = _compared(given, program)
    return _shown_and_saved(result, given, command, program)


def _function(name: str) -> Callable[..., Any]:
    """A function of the package, imported when it is used."""
    import churn_compare

    return getattr(churn_compare, name)


def _shown_and_saved(
    result: Any, given: Mapping[str, Any], command: str, program: str
) -> int:
    """Writes the output files and prints a result; returns the exit code."""
    from churn_compare import array_files, documents

    full, written = given.get("full", True), []

    def write(name: str) -> None:
        if name == "github":
            with open(os.environ[_SUMMARY], "a", encoding="utf-8") as summary:
                summary.write(result.markdown())
        elif name == "html":
            written.append(result.save_html(given[name], command=command))
        elif name == "json":
            written.append(result.save_json(given[name]))
        else:
            of = result.rule.to_json if name == "out" else getattr(result, name)
            by = ["failure"] * (name == "junit" and given.get("inconclusive") == "fail")
            written.append(array_files.write_file(given[name], of(*by)))

    def show() -> None:
        documents.print_document(result.terminal(full=full))
        if not full:
            page = "" if given["html"] else "; --html FILE writes the page"
            print(f"\n--full prints every table{page}.")

    # Steps are run in reverse order, each of them even if another one fails; printing
    # is the last one, since a reader such as `head` may close the pipe.
    with contextlib.ExitStack() as steps:
        steps.callback(show)
        for name in filter(given.get, ("github", *_FILES_OUT[::-1])):
            steps.callback(write, name)
    if written:
        print(f"\nWritten: {printable(', '.join(map(str, written)))}")
    if given.get("demo"):
        print(f"\n{_DEMO_NEXT.format(program=program)}")
    codes = {"pass": 0, "fail": 1, "exit": 4}
    codes["inconclusive"] = codes[given.get("inconclusive", "exit")]
    return codes[result.state]


def _label(given: dict[str, Any], program: str) -> int:
    """Writes a queue of changed examples to label."""
    from churn_compare.labelling import would_be_lost
    from churn_compare.number_text import remark

    old, new, out = (given[name] for name in ("old", "new", "out"))
    if would_be_lost(out):
        raise ValueError(
            f"--out: {out} has answers or is no queue, and would be lost; move it or "
            "name another file"
        )
    settings = _settings(given | {"budget": given["budget"] or None})
    queue = _function("label_queue")(**settings)
    for note in dict.fromkeys(queue.notes):
        print(printable(remark(note)))
    words = [str(old), str(new)]
    for field in dataclasses.fields(_Reading):
        if (value := given[field.name]) != field.default:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{field.name.replace('_', '-')}", *map(str, values)]
    words += ["--labels", str(out), "--max-nfr", "1%"]
    print(
        f"{queue.changed:,} of {queue.examples:,} examples change; {len(queue.rows):,} "
        f"of them, in random order, are to be labelled.\n"
        f"Written: {printable(', '.join(map(str, queue.save(out))))}\n"
        "Fill label (or better) from the first row on, as far as you get, then:\n"
        f"  {program.removesuffix(' label')} {shlex.join(words)}"
    )
    return 0


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that are arguments of a function of the package."""
    found = {
        name: value
        for name, value in given.items()
        if value is not None
        and name not in (*_FILES_OUT, "full")
        and name[:4] not in _LIMITED
    }
    return found | (_gates(given) if "gates" in given else {})


def _gates(given: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of the gate file and of the options, and its waivers."""
    from churn_compare import gates

    limits = {
        f"--{name.replace('_', '-')}": limit
        for name, limit in given.items()
        if name.startswith(_LIMITED) and limit is not None
    }
    file = given["gates"] or ()
    over = gates.gates_by_name(limits)
    wanted = gates.combined(gates.as_gates(file, bool(over)), over)
    return {"gates": wanted, "waivers": gates.waivers_of(file)}


def _check_moved(argv: Sequence[str]) -> None:
    """Raises for limits and settings of gate files that are given as options."""
    known = {option.word for option in options_of(Arguments).values()}
    for word in argv:
        name = word.partition("=")[0].replace("_", "-")
        if name in known or not name.startswith(("--max-", "--min-", "--on")):
            continue
        from churn_compare import gates

        parts = re.match("--(max|min)-(slice|class)(?=-)", name)
        key = (f"{parts[1]}{name[parts.end() :]}" if parts else name).strip("-")
        try:
            if key not in ("on", "min-examples"):
                gates.bound_and_quantity(key)
        except gates.GateError:
            continue
        table = {"slice": " under [slices]", "class": " under [classes]"}
        where = table[parts[2]] if parts else ""
        raise ValueError(
            f"{name} is set in a gate file: write {key} = ...{where} into the file of "
            "--gates"
        )


def _check_outputs(given: Mapping[str, Any]) -> None:
    """Raises if an output file is also read, or written twice."""
    from churn_compare.reading import contents

    names = ("old", "new", "labels", "slices", "gates", "class_map", "suite")
    read = [given[name] for name in names if given.get(name) is not None]
    read += (*given.get("validation", ()), *given.get("noise", ()))
    # `Path.resolve` raises for a loop of links, which opening the file reports.
    taken = {os.path.realpath(path): "what is read" for path in read}
    if given.get("github") and not os.environ.get(_SUMMARY):
        raise ValueError(f"--github needs ${_SUMMARY}, which GitHub's runners set")
    outputs = [(name, given[name]) for name in _FILES_OUT if given.get(name)]
    if queue := "blind" in given:  # a table, which also replaces its key
        from churn_compare.labelling import key_of

        outputs.append(("out", key_of(given["out"])))
    for name, path in outputs:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "not an ordinary file"
            raise ValueError(f"--{name}: {path} is {what}; name a file")
        place = os.path.realpath(path)
        if queue and path.suffix.lower() != ".csv":
            raise ValueError(f"--{name}: a queue is a CSV file; name it .csv")
        if path.name.lower().endswith(contents.ENDINGS) and not queue:
            raise ValueError(
                f"--{name}: {path} is called like predictions; name it .{name}"
            )
        # In a folder that is read, tables are predictions, an index makes it a store,
        # and JSON may be a log.
        table = place.lower().endswith((*contents.ENDINGS, f"/{contents.INDEX}"))
        if path.is_file() and place.lower().endswith((".json", ".eval")):
            with path.open("rb") as file:
                table |= not re.match(rb'{\n "format": \d', file.read(99))  # no report
        for known, what in taken.items():
            if place == known or (table and Path(known) in Path(place).parents):
                where = "lies within" if place != known else "would write over"
                raise ValueError(f"--{name}: {path} {where} {what}; name another")
        taken[place] = f"the file of --{name}"


def _compared(given: Mapping[str, Any], program: str) -> Any:
    """The result of the comparison that the options ask for."""
    from churn_compare import gates
    from churn_compare.noise import noise_floor
    from churn_compare.reading.outcomes import has_outcomes
    from churn_compare.tables import LISTED

    old, new, limits = given["old"], given["new"], _gates(given)
    what = "folder" if new is None else "classes"
    if given["noise"]:
        what = "noise"
        if old is not None or limits["gates"]:
            raise ValueError(
                "--noise compares runs of one version: leave OLD, NEW and limits out"
            )
    elif old is None:
        raise ValueError(
            f"OLD and NEW are missing ({program} -h lists the options){_taken(given)}"
        )
    elif new is None and not old.is_dir():
        raise ValueError(
            f"{old}: NEW is missing; name two versions, or a folder of them"
            f"{_taken(given)}"
        )
    elif given["score_column"] and new is not None:
        what = "outcomes"
    elif not any(given[name] for name in _KINDS) and has_outcomes(old):
        what = "outcomes"
        if new is None:
            raise ValueError(f"{old}: NEW is missing; name two such folders")
    for of, names, why in _REFUSED:
        for name in names:
            if of == what and given[name]:
                raise ValueError(f"--{name.replace('_', '-')} {why}")
    names = {"classes": "compare", "folder": "compare_versions"}
    name = names.get(what, "compare_outcomes")
    function: Any = noise_floor if what == "noise" else _function(name)
    tolerance = given["tolerance"] or "0"
    settings: dict[str, Any] = {
        **given,
        **limits,
        "clusters": given["cluster"],
        "score_columns": given["score_column"],
        "target_column": given["label_column"],
        "grades": _grades(given["grades"]),
        "normalize": given["normalize"] or "text",
        "tolerance": gates.limit_of(tolerance, "--tolerance"),
        "relative": tolerance.rstrip().endswith("%"),
        "order": given["order"] or None,
        "regressions": LISTED,
    }
    known = {*inspect.signature(function).parameters} - {"old", "new"}
    known |= {"equivalent", "level", "pool"} if what == "folder" else set()
    sides = given["noise"] or [side for side in (old, new) if side is not None]
    return function(*sides, **{n: settings[n] for n in known & settings.keys()})


def _taken(given: Mapping[str, Any]) -> str:
    """A hint if files were taken for values of an option."""
    several = (value for value in given.values() if isinstance(value, tuple))
    if not any(os.path.exists(name) for names in several for name in names):
        return ""
    return "; write OLD and NEW before options of several names, such as --by"


def _grades(given: Sequence[str]) -> dict[str, float]:
    """Grades with their numbers, from texts such as `A=1`."""
    found: dict[str, float] = {}
    for word in given:
        grade, _, worth = word.rpartition("=")
        with contextlib.suppress(ValueError):
            if grade and grade not in found and math.isfinite(float(worth)):
                found[grade] = float(worth)
                continue
        raise ValueError(f"--grades takes each grade once, A=1 B=0.5; got {word!r}")
    return found


# Function, options, description and required arguments.
_COMMANDS: dict[str, tuple[str, type, str, tuple[str, ...]]] = {
    "": ("compare", Arguments, DESCRIPTION, ()),
    "label": ("label_queue", LabelArguments, _LABEL, ("OLD", "NEW", "--out")),
    "repair": ("repair", RepairArguments, _REPAIR, ("OLD", "NEW", "--validation")),
    "size": ("size", SizeArguments, _SIZE, ("OLD", "NEW")),
    "suite": ("compare_suite", SuiteArguments, _SUITE, ("OLD", "NEW")),
}

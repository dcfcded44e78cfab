import dataclasses
import functools
import sys
from importlib import metadata
from pathlib import Path

import flax.linen as nn
import optax
import pytest

from churn_jax import methods, registry
from churn_jax.cli import main
from churn_jax.configuration import from_json, to_json
from churn_jax.methods import METHODS, PENALTIES, AntiDistillation, Method, pytree
from churn_jax.models import MLP, MODELS, create
from churn_jax.registry import Registry, dotted_name
from churn_jax.reports import QUANTITIES, column
from churn_jax.studies import PRESETS, ModelConfig, StudyConfig, preset
from churn_jax.studies.folder import importable
from churn_jax.studies.presets import as_row, parted
from tests.refusals import refusals


@pytree
class Mine(Method):
    pass


class Plain(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.num_classes)(x.reshape(x.shape[0], -1))


def penalty(signals, *, mask, axis_name):
    del mask, axis_name
    return signals.sum()


def my_study():
    config = preset("digits")
    row = dataclasses.replace(
        config.methods[0], method=Mine(), model=ModelConfig("net")
    )
    return dataclasses.replace(config, methods=(row,), columns=("churn", "largest"))


@column("Largest logit", narrow=True)
def largest(logits, labels):
    del labels
    return logits.max()


@pytest.fixture
def shapes():
    return Registry("shape", {"square": "math:sqrt", "line": abs})


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    for kind in (METHODS, PENALTIES, MODELS, PRESETS, QUANTITIES):
        monkeypatch.setattr(kind, "_registered", dict(kind._registered))
    monkeypatch.setattr(registry, "_entry_points_imported", True)


def test_built_in_values_come_first_and_are_imported_on_use(shapes):
    shapes.register("circle")(len)
    assert list(shapes) == ["square", "line", "circle"] and len(shapes) == 3
    assert shapes["square"](9) == 3 and shapes["line"](-1) == 1
    assert "circle" in shapes and "sphere" not in shapes and 3 not in shapes
    with pytest.raises(KeyError):
        shapes["sphere"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("square", "taken"), ("a:b", "has : or"), ("a@b", "has : or"), ("", "empty")],
)
def test_a_name_that_cannot_be_registered_is_refused(shapes, name, why):
    with pytest.raises(
        ValueError, match=f"a shape cannot be called '{name}': it .*{why}"
    ):
        shapes.register(name)


test_what_cannot_be_found_is_named = refusals(
    ("lien", "unknown shape 'lien'; known: square, line; did you mean line?"),
    ("no_such_module:x", "no_such_module cannot be imported .*PYTHONPATH"),
    (":x", "no module cannot be imported"),
    ("math:", "module math has no "),
    ("math:no.where", "module math has no no.where"),
    ("a@b/z.py:f", "there is no file a@b/z.py here"),
    ("math:sqr", "module math has no sqr; did you mean sqrt"),
    call=lambda shapes, name: shapes.find(name),
    fixtures=["shapes"],
)


@pytest.mark.parametrize(
    ("text", "why"), [("1 / 0", "ZeroDivisionE.*: "), ("raise SystemExit(0)", "t: 0")]
)
def test_an_error_inside_a_module_is_one_sentence(
    shapes, tmp_path, monkeypatch, text, why
):
    (tmp_path / "broken_shapes.py").write_text(f"{text}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=rf"broken_shapes cannot .*{why}.*\); correct"):
        shapes.find("broken_shapes:x")


def test_records_name_built_in_values_shortly_and_others_by_their_module(shapes):
    shapes.register("circle")(dotted_name)
    dotted = "churn_jax.registry:dotted_name"
    names = ["line", abs, "unknown", "circle", dotted_name, dotted]
    found = [shapes.record_name(name) for name in names]
    assert found == ["line", "line", "unknown", dotted, dotted, dotted]
    shapes.register("half")(functools.partial(pow, 2))
    assert shapes.record_name("half") == "half"  # an instance has no other name
    assert METHODS.record_name(METHODS["ERM"]) == "ERM"
    assert METHODS.find(METHODS.record_name(Mine)) is Mine
    assert dotted_name(optax.lion) == "optax:lion"


def test_an_object_has_a_name_that_its_content_tells(shapes):
    """What can be imported keeps its dotted name; the rest lives in this process."""
    assert shapes.name(abs, str) == "line"
    assert shapes.name(dotted_name, str) == "churn_jax.registry:dotted_name"
    first, again, other = (lambda: 1), (lambda: 1), (lambda: 2)
    names = [shapes.name(f, lambda f=f: f"{f()}") for f in (first, again, other)]
    assert names[0] == names[1] != names[2] and names[0].startswith("shape@")
    assert shapes.find(names[0]) is again and shapes.find(names[2]) is other
    assert shapes.record_name(names[0]) == names[0]
    with pytest.raises(ValueError, match="shape@12345678 was given as a Python object"):
        shapes.find("shape@12345678")
    with pytest.raises(TypeError, match="3 cannot be registered as a shape"):
        shapes.name(3, str)


def test_a_script_is_found_by_the_name_of_its_file(shapes, tmp_path, monkeypatch):
    main = type(sys)("__main__")
    main.__file__, main.square = str(tmp_path / "own_shapes.py"), lambda: 4
    main.square.__module__, main.square.__qualname__ = "__main__", "square"
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert shapes.record_name(main.square) == "own_shapes:square"
    assert shapes.find("own_shapes:square") is main.square


class _Entry:
    value = "mine.churn"

    def __init__(self, load):
        self.load = load


def test_installed_packages_register_by_an_entry_point(shapes, monkeypatch):
    def load():
        shapes.register("circle")(len)
        assert "circle" in list(shapes)  # a second look imports nothing again

    found = {"churn_jax": [_Entry(load)]}
    monkeypatch.setattr(metadata, "entry_points", lambda group: found[group])
    monkeypatch.setattr(registry, "_entry_points_imported", False)
    assert shapes.find("line") is abs
    assert not registry._entry_points_imported  # built-in names need none
    assert shapes.find("circle") is len


def test_a_broken_package_is_named_and_left_out(shapes, monkeypatch):
    def load():
        raise ImportError("no such file")

    monkeypatch.setattr(metadata, "entry_points", lambda group: [_Entry(load)])
    monkeypatch.setattr(registry, "_entry_points_imported", False)
    with pytest.warns(UserWarning, match=r"mine.churn could not be .*no such file"):
        assert list(shapes) == ["square", "line"]


@pytest.mark.parametrize("kind", [METHODS, PENALTIES, PRESETS, QUANTITIES])
def test_every_built_in_name_is_found(kind):
    built_in = list(kind._built_in)
    assert [kind.record_name(kind[name]) for name in built_in] == built_in


def test_every_method_of_the_package_has_its_name():
    bases = {"Method", "Perturbing", "Updating"}
    found = {name: getattr(methods, name) for name in methods.__all__}
    ours = {
        n for n, v in found.items() if isinstance(v, type) and issubclass(v, Method)
    }
    assert set(METHODS._built_in) == ours - bases
    assert all(METHODS[name] is found[name] for name in ours - bases)


def test_a_penalty_is_a_name_a_function_or_where_it_is():
    dotted = f"{__name__}:penalty"
    method = AntiDistillation(penalty=penalty)
    assert method == AntiDistillation(penalty=dotted) and method.penalty == dotted
    PENALTIES.register("sum")(penalty)
    assert AntiDistillation(penalty="sum") == method
    assert AntiDistillation().penalty == "correlation"
    with pytest.raises(ValueError, match="define it at the top level of the module"):
        AntiDistillation(penalty=lambda signals, **_: 0.0)
    with pytest.raises(ValueError, match="unknown penalty 'corelation'"):
        AntiDistillation(penalty="corelation")


def test_a_network_of_another_module_is_created():
    built = create("churn_jax.models.mlp:MLP", num_classes=3, features=(4,))
    assert built.num_classes == 3 and built.features == (4,)
    with pytest.raises(ValueError, match="math:pi is not a network"):
        create("math:pi", num_classes=3)


def test_a_preset_of_another_module_is_made_and_has_a_tiny_form():
    dotted = f"{__name__}:my_study"
    assert preset(dotted) == my_study()
    assert preset(f"{dotted}:tiny").name == "digits-tiny"
    PRESETS.register("mine")(my_study)
    assert parted("mine:tiny") == ("mine", "tiny") and preset("mine") == my_study()
    with pytest.raises(ValueError, match="must make a StudyConfig; got int"):
        preset(f"{__name__}:three")


def three():
    return 3


def test_studies_of_a_file_are_found_and_listed(tmp_path, monkeypatch, capsys):
    source = """
from churn_jax.studies import StudyConfig, preset
def study() -> StudyConfig: return preset("digits")
def clicks() -> StudyConfig: return preset("clicks")
def other(of: int) -> StudyConfig: ...
def _private() -> StudyConfig: ...
"""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "grids.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = "papers/grids.py"
    assert parted(f"{file}:study:tiny") == (f"{file}:study", "tiny")
    for form in ("", ":tiny"):
        assert preset(f"{file}:study{form}") == preset(f"digits{form}")
        assert preset(f"{file}:clicks{form}") == preset(f"clicks{form}")
    assert preset(f"{tmp_path / file}:study") == preset("digits")
    (tmp_path / "papers.v1").mkdir()  # no package
    (tmp_path / "papers.v1" / "more.py").write_text(source)
    assert preset("papers.v1/more.py:study") == preset("digits")
    assert main(["study", file, "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [f"{file}:study", f"{file}:clicks"]
    broken = "def broken() -> StudyConfig: return {}['x']\n"
    Path("failing.py").write_text(source + broken)
    assert main(["study", "failing.py", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 3 and listed[2] == "failing.py:broken  KeyError: 'x'"
    Path("plain.py").write_text("def study(): ...")
    assert main(["study", "plain.py", "--list"]) == 2
    assert "plain.py: no function is declared NAME() -> " in capsys.readouterr().err
    for name in ("optax.py", "sys.py", "grids.v1.py"):
        Path(name).write_text(source)
    for find, name, said in (
        (preset, file, f"{file} --list names its studies"),
        (preset, f"{file}:click", "has no click; did you mean clicks"),
        (preset, "failing.py:other", "other is called without arguments, so"),
        (preset, "sys.py:study", "sys is the module sys; rename the file"),
        (preset, "optax.py:study", r"optax is the module .*; rename the file"),
        (preset, "grids.v1.py:study", r"grids\.v1\.py cannot be imported; rename it"),
    ):
        with pytest.raises(ValueError, match=said):
            find(name)


def test_a_study_is_recorded_by_names_that_other_processes_find():
    MODELS.register("net")(MLP)
    config = importable(my_study())
    assert config.columns == ("churn", f"{__name__}:largest")
    assert config.methods[0].model.name == "churn_jax.models.mlp:MLP"
    record = to_json(config)
    assert record["methods"][0]["method"]["class"] == f"{__name__}:Mine"
    assert from_json(StudyConfig, record) == config
    record["methods"][0]["method"]["class"] = "gone.methods:Mine"
    with pytest.raises(ValueError, match=r"methods.\w+.method: gone.* cannot be impor"):
        from_json(StudyConfig, record)


def test_a_network_of_your_own_needs_no_dtype():
    assert ModelConfig(f"{__name__}:Plain").build(3).name == f"{__name__}:Plain"
    with pytest.raises(ValueError, match="has no field 'dtype'"):
        ModelConfig(f"{__name__}:Plain", dtype="bfloat16").build(3)
    with pytest.raises(TypeError, match="cannot be registered as a network"):
        MODELS.register("bare")(3)
    MODELS.register("made")(lambda: Plain(num_classes=3))
    assert ModelConfig("made").build(3).name == "made"
    with pytest.raises(ValueError, match=r"made is .* without settings.*; got dtype"):
        ModelConfig("made", dtype="bfloat16").build(3)


def test_methods_are_added_by_their_names():
    rows = [as_row("MinimumEntropy"), as_row(f"{__name__}:Mine")]
    assert [row.name for row in rows] == ["minimum_entropy", "mine"]
    assert rows[1].method == Mine() and rows[1].label == "Mine"
    with pytest.raises(ValueError, match=r"^elodi: it needs a teacher; give it as Me"):
        dataclasses.replace(preset("digits"), methods=(as_row("ELODI"),))
    file = Path(__file__).relative_to(Path.cwd())
    assert as_row(f"{file}:Mine").method == Mine()
    with pytest.raises(ValueError, match=r"a/b\.py:X: .*there is no file a/b\.py here"):
        as_row("a/b.py:X")
    with pytest.raises(ValueError, match=r"unknown method 'Main'; .*did you mean Mi"):
        METHODS.register("Mine")(Mine)
        as_row("Main")

"""Gates as they are written in a file."""

import pytest

from churn_compare import QUANTITIES, Gate, GateError, read_gates
from churn_compare.gates import EXCESS, SHORT, as_gates, bound_and_quantity, limit_of

EVERYTHING = """
on = "bound"
min-examples = 30
max-churn = "5%"
max-nfr = {limit = 0.01, on = "estimate"}
min-accuracy_gain = -0.005
max-excess-churn = 0

[slices]
max-churn = 0.1

[slices.region]
min-examples = 10
max-churn = 0.2
[slices.region."north west"]
on = "estimate"
max-churn = 0.3

[classes]
max-nfr = {limit = "2 %", min-examples = 5}
[classes.7]
max-nfr = 0.03
"""


def written(tmp_path, text):
    path = tmp_path / "gates.toml"
    path.write_text(text)
    return path


def test_a_file_says_what_it_says(tmp_path):
    some = {"on": "bound", "min_examples": 30}
    nfr = "negative_flip_rate"
    assert read_gates(written(tmp_path, EVERYTHING)) == (
        Gate("churn", 0.05, **some),
        Gate(nfr, 0.01, min_examples=30),
        Gate("accuracy_gain", -0.005, "min", **some),
        Gate("excess_churn", 0.0, **some),
        Gate("churn", 0.1, grouping="*", **some),
        Gate("churn", 0.2, on="bound", grouping="region", min_examples=10),
        Gate("churn", 0.3, grouping="region", group="north west", min_examples=10),
        Gate(nfr, 0.02, on="bound", grouping="class", min_examples=5),
        Gate(nfr, 0.03, grouping="class", group="7", **some),
    )


@pytest.mark.parametrize("bound", ["max", "min"])
def test_every_quantity_has_a_key(bound):
    for name in (*QUANTITIES, EXCESS):
        assert bound_and_quantity(f"{bound}-{name}") == (bound, name)
        hyphens = name.replace("_", "-")
        assert bound_and_quantity(f"{bound}-{hyphens}") == (bound, name)
    for short, name in SHORT.items():
        assert bound_and_quantity(f"{bound}_{short}") == (bound, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-chrun = 0.1", "max-chrun: unknown key 'max-chrun'; did you mean"),
        ("churn = 0.1", "churn: unknown key 'churn'; did you mean"),
        ("zzz = 0.1", "keys begin with max- or min-"),
        ("[slices.region]\nmax-nrf = 0.1", "slices.region.max-nrf: unknown key"),
        ("[slices]\nmax-kappa = 0.1", "slices.max-kappa: no quantity 'kappa'"),
        ("[classes.7]\nmax-nfr = 'x'", "classes.7.max-nfr: the limit must be a number"),
        ("max-nfr = true", "max-nfr: the limit must be a number such as 0.02 or 2%"),
        ("max-nfr = nan", "max-nfr: the limit must be a number"),
        (f"max-nfr = 1{'0' * 400}", "max-nfr: the limit must be a number"),
        ("max-nfr = 2", "max-nfr: the limit of negative_flip_rate must lie"),
        ("max-nfr = 1", "max-nfr: the limit 1 may mean 1 % or 100 %; write 1% or 100%"),
        ("[slices]\nmin-accuracy-gain = -1.0", "write -1% or -100%"),
        ("equivalent = '1'", "write 1% or 100%"),
        ("max-nfr = {on = 'bound'}", "max-nfr: a gate needs a limit"),
        ("[slices]\nmax-nfr = {on = 'bound'}", "slices.max-nfr: a gate needs a limit"),
        ("max-nfr = {limit = 0.1, of = 1}", "max-nfr: unknown key 'of'"),
        ("max-nfr = {limit = 0.1, om = 'bound'}", "unknown key 'om'; known are limit"),
        ("on = 'top'\nmax-nfr = 0.1", 'on must be "estimate" or "bound" or'),
        ("min-examples = 0\nmax-nfr = 0.1", "min-examples must be a count"),
        ("[slice]\nmax-nfr = 0.1", "unknown table 'slice'; did you mean slices?"),
        ("slices = 3", "slices must be a table, [slices]; got 3"),
        ("", "there is no gate in it, such as max-churn = 0.05"),
        ("on = 'bound'", "there is no gate in it"),
        ("max-nfr = 0.1\n[classes]\non = 'bound'", "classes: there is no gate"),
        ("max-nfr = 0.1\n[slices.region.north]", "slices.region.north: there is"),
        ("max-nfr = = 1", "not a TOML file"),
        ("max-nfr = 0.1\nmax-nfr = 0.2", "not a TOML file"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(GateError) as caught:
        read_gates(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_a_file_that_is_none_is_said_to_be_none(tmp_path):
    with pytest.raises(GateError, match="the gate file does not exist"):
        read_gates(tmp_path / "gates.toml")
    with pytest.raises(GateError, match="the gate file is a folder"):
        read_gates(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\nmax-nfr = 0.1")
    with pytest.raises(GateError, match="not a TOML file"):
        read_gates(tmp_path / "latin.toml")


def test_limits_are_numbers_or_percentages():
    limits = {"2%": 0.02, " 2 % ": 0.02, "0.02": 0.02, 0.02: 0.02, 1: 1.0, "-1%": -0.01}
    for given, value in limits.items():
        assert limit_of(given, "x") == pytest.approx(value, abs=0)
    for given in ("", "%", "2%%", "two", None, True, [], "inf", "nan%"):
        with pytest.raises(GateError, match="max-churn must be a number such as"):
            limit_of(given, "max-churn")


def test_gates_are_given_as_they_come(tmp_path):
    gates = (Gate("churn", 0.1), Gate("kappa", 0.5, "min"))
    path = written(tmp_path, "max-churn = 0.1\nmin-kappa = 0.5")
    named = {"max_churn": "10%", "min-kappa": 0.5}
    for given in (gates, list(gates), iter(gates), path, str(path), named):
        assert as_gates(given) == gates
    assert as_gates(()) == as_gates({"max_churn": None}) == ()
    with pytest.raises(GateError, match="not a gate: 'max-churn'; write Gate"):
        as_gates(["max-churn"])
    with pytest.raises(GateError, match="unknown key 'churn'; did you mean"):
        as_gates({"churn": 0.1})

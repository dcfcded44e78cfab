import runpy

import pytest

from churn_jax.cli import main
from churn_jax.command.stopping import NOT_FINISHED


def test_help_lists_every_exit_code(capsys):
    assert main(["-h"]) == 0
    said = capsys.readouterr().out
    codes = said.partition("exit codes:\n")[2].splitlines()
    assert [int(line.split()[0]) for line in codes] == [0, 1, 2, NOT_FINISHED, 130, 134]
    (line,) = (line for line in codes if int(line.split()[0]) == NOT_FINISHED)
    assert "--minutes" in line


@pytest.mark.parametrize(
    ("word", "hint"), [("studdy", "did you mean study?"), ("zzz", "-h lists them")]
)
def test_an_unknown_command_is_one_sentence(word, hint, capsys):
    assert main([word]) == 2
    said = capsys.readouterr().err
    assert hint in said and said.count("\n") == 1


def test_the_package_is_the_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["python -m churn_jax", "zzz"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("churn_jax", run_name="__main__")
    assert ended.value.code == 2 and "'zzz'" in capsys.readouterr().err

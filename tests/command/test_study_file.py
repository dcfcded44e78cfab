"""`--config FILE` and `--print-config`: options in a file are options."""

import pytest

from churn_jax.cli import main
from churn_jax.command.plan import read_plan
from churn_jax.command.stream import read_stream
from churn_jax.command.study import _parse
from churn_jax.command.sweep import read_sweep

READERS = {
    "study": _parse,
    "sweep": read_sweep,
    "stream": read_stream,
    "plan": read_plan,
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(command, words, capsys):
    """What `--print-config` writes."""
    with pytest.raises(SystemExit) as ended:
        main([command, *words, "--print-config"])
    assert not ended.value.code
    return capsys.readouterr().out


def without_the_file(found):
    """The study and its options, less those that are resolved in the study."""
    return [
        vars(part) | {"config": None, "set": (), "model": None}
        if hasattr(part, "print_config")
        else part
        for part in found
    ]


@pytest.mark.parametrize(
    "line",
    [
        "study digits --epochs 3 --set codistill_skl.beta=0.2",
        "study digits:tiny --only baseline entropy --minutes 9 --out mine/ü\x7f",
        "study digits --data.train-size None --train.optimizer.learning-rate 0.1",
        "study digits --method ERM MinimumEntropy --model lenet5 --mesh replica=2",
        "study dm-digits --train.optimizer.no-nesterov --train.seed-numbers 3 4 5 6 7",
        "study dm-digits:tiny --model.sharing.bias shared",
        "study elodi-digits --evaluation.predictions shards --quiet",
        "study own --data digits --model lenet5 --epochs 4",
        "sweep digits codistill_skl.beta=0.1,0.3 entropy.alpha --seeds 3",
        "sweep digits codistill_skl --select --mesh replica=3",
        "stream clicks:gated --window 512 --set covariance_1_s1.strength=0.5",
        "stream clicks:warm --data a.csv --schema adult --group sex",
        "plan digits --topology v6e:2x2 --mesh replica=2 --row baseline",
        "plan clicks --holdout 0.2 --topology v5e:2x2",
    ],
)
def test_what_is_printed_is_the_same_study(line, capsys):
    command, *words = line.split()
    with open("study.toml", "w", encoding="utf-8") as file:
        file.write(printed(command, words, capsys))
    read = READERS[command]
    again = read(["--config", "study.toml"])
    assert without_the_file(again) == without_the_file(read(words))


def test_options_that_are_given_in_addition_win(capsys):
    with open("study.toml", "w", encoding="utf-8-sig") as file:  # as Notepad writes
        file.write(
            'preset = "digits:tiny"\nepochs = 3\nmodel = "lenet5"\n'
            'only = ["ensemble"]\nmesh = "replica=2"\n'
            "[set]\nentropy.alpha = 0.25\ncodistill_skl.beta = 1\n"
            "[train]\nbatch-size = 32\noptimizer.nesterov = false\n"
        )
    config, options = _parse(["--config=study.toml"])
    assert (config.name, config.model.name) == ("digits-tiny", "lenet5")
    assert (config.train.epochs, config.train.batch_size) == (3, 32)
    assert config.train.mesh.replica == 2 and not config.train.optimizer.nesterov
    assert options.only == ("ensemble",)

    words = "--epochs 4 --only baseline --set entropy.alpha=0.5"
    config, options = _parse(["digits:tiny", "--config", "study.toml", *words.split()])
    assert config.train.epochs == 4 and options.only == ("baseline",)
    assert config.spec("entropy").method.alpha == 0.5
    assert config.spec("codistill_skl").method.beta == 1


def test_a_plan_takes_the_file_of_a_study(capsys):
    words = ["digits", "--only", "baseline", "--minutes", "9", "--epochs", "7"]
    with open("study.toml", "w") as file:
        file.write(printed("study", words, capsys))
    config, _, meshed = read_plan(["--config", "study.toml"])
    assert config.train.epochs == 7 and not meshed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch = 3", "a.toml: there is no option epoch; did you mean epochs?"),
        ("[train]\nepoch = 3", "there is no option train.epoch; did you mean train.ep"),
        ("epochs = 'ten'", "a.toml: train.epochs must be a whole number; got 'ten'"),
        ("epochs = 2.5", "train.epochs must be a whole number; got 2.5"),
        ("only = 'baseline'", "only must be a list; got 'baseline'"),
        ("out = 3", "out must be a text; got 3"),
        ("model.name = 'None'", "model.name must be a text; got None"),
        ("train = 3", "train is a table"),
        ("epochs = 3\ntrain.epochs = 4", "train.epochs is given twice"),
        ("fresh = true", "--fresh is for one launch"),
        ("set.entropy.alpha = 'x'", "set.entropy.alpha must be a number"),
        ("set.entropy.alhpa = 1", "entropy has no coefficient 'alhpa'"),
        ("set.entropi.alpha = 1", "unknown method 'entropi'"),
        ("epochs =", "a.toml is not valid TOML: Invalid value (at line 2"),
        ("mesh = 'a=3'", "a.toml: mesh must name replica, member and data"),
        ("mesh = 'replica=3'", "10 replicas cannot be sharded"),
    ],
)
def test_a_bad_file_is_one_sentence_and_exit_code_2(text, said, capsys):
    with open("a.toml", "w") as file:
        file.write(f"preset = 'digits'\n{text}\n")
    assert main(["study", "--config", "a.toml"]) == 2
    sentence = capsys.readouterr().err
    assert said in sentence and sentence.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("study --config", "--config needs a TOML file"),
        ("study --config none.toml", "--config none.toml: No such file"),
        ("study --config empty.toml", 'names no preset; write preset = "digits"'),
        ("study mnist --config own.toml", "names the preset own, and the command mn"),
        ("study digits --epoch 3", "did you mean --epochs?"),
        ("study digits --train.optimiser.name adam", "mean --train.optimizer.name?"),
        ("study digits --learning_rate 1", "mean --train.optimizer.learning-rate?"),
        ("stream clicks --windw 512", "did you mean --train.window?"),
    ],
)
def test_bad_words_are_one_sentence_and_exit_code_2(words, said, capsys):
    open("empty.toml", "w").close()
    with open("own.toml", "w") as file:
        file.write("preset = 'own'")
    assert main(words.split()) == 2
    sentence = capsys.readouterr().err
    assert said in sentence and sentence.count("\n") == 1


def test_an_option_that_is_given_twice_keeps_both_values():
    words = "--set entropy.alpha=0.5 --epochs 3 --set=codistill_skl.beta=2"
    config, options = _parse(
        ["digits", *words.split(), "--only", "entropy", "--only", "baseline"]
    )
    assert options.only == ("entropy", "baseline") and config.train.epochs == 3
    assert config.spec("entropy").method.alpha == 0.5
    assert config.spec("codistill_skl").method.beta == 2

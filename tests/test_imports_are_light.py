"""Importing the functions on arrays loads no trainer, no TensorFlow and no plotting."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "tensorflow",
    "tensorflow_datasets",
    "orbax",
    "matplotlib",
    "grain",
    "tyro",
    "rich",
    "tensorboardX",
    "wandb",
    "mlflow",
    "churn_jax.training",
    "churn_jax.studies",
    "churn_jax.reports",
    "churn_jax.data",
)


def loaded_by(statement):
    """Names of `HEAVY` that are loaded after `statement` in a fresh interpreter."""
    code = (
        f"import json, sys\n{statement}\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_losses_are_light():
    assert loaded_by("import churn_jax.losses") == []


def test_losses_and_metrics_are_light():
    # Metric states are flax.struct dataclasses, and flax itself loads rich.
    of_flax = [m for m in loaded_by("import flax.struct") if m == "rich"]
    assert loaded_by("import churn_jax.losses, churn_jax.metrics") == of_flax


def test_the_package_itself_does_not_even_load_jax():
    assert loaded_by("import churn_jax\nassert 'jax' not in sys.modules") == []


ASKED = (
    "-h",
    *(f"{name} -h" for name in ("study", "sweep", "stream", "plan", "report")),
    *(f"{name} -h" for name in ("compare", "diversity", "displacement", "doctor")),
    "study --list",
    "study own -h",
    "study elodi-fashion:tiny -h",
    "stream clicks:gated -h",
    "study digits --epochs 3 --set entropy.alpha=0.1 --print-config",
    "completion bash",
    "completion fish study digits --only b",
    "completion fish study digits --e",
    "studdy",
    "study digit",
    "study digits --epoch 3",
    "study digits --only baselin",
    "study digits --set baselin.beta=1",
    "sweep digits baselin.beta",
    "plan digits --row baselin",
    "doctor digit",
    "stream click",
)


def test_help_lists_and_mistakes_load_no_jax():
    codes = loaded_by(
        "import contextlib, io\n"
        "from churn_jax.cli import main\n"
        "def run(words):\n"
        "    said = io.StringIO()\n"
        "    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):\n"
        "        try:\n"
        "            main(words.split())\n"
        "        except SystemExit:\n"
        "            pass\n"
        "    assert said.getvalue(), words\n"
        "    for name in ('jax', 'flax', 'optax', 'orbax', 'matplotlib'):\n"
        "        assert name not in sys.modules, (words, name)\n"
        f"for words in {ASKED!r}:\n"
        "    run(words)\n"
    )
    assert "churn_jax.reports.study_report" not in codes


def test_every_preset_is_made_without_jax():
    loaded_by(
        "from churn_jax.studies import PRESETS, preset\n"
        "from churn_jax.studies.streams import STREAM_PRESETS, stream_preset\n"
        "for name in PRESETS: preset(name), preset(f'{name}:tiny')\n"
        "for name in STREAM_PRESETS: stream_preset(name)\n"
        "assert not {'jax', 'flax', 'optax'} & set(sys.modules)"
    )


def test_methods_made_before_jax_can_be_swept():
    loaded_by(
        "from churn_jax.studies import preset\n"
        "from churn_jax.studies.grid import Axis\n"
        "config = preset('digits')\n"
        "assert 'jax' not in sys.modules\n"
        "assert Axis.parse('entropy.alpha=0.1', config).values == (0.1,)"
    )


def test_methods_made_before_jax_are_pytrees():
    loaded_by(
        "from churn_jax.studies import preset\n"
        "method = preset('digits').spec('codistill_skl').method\n"
        "from churn_jax.methods import Method\n"
        "import jax\n"
        "assert isinstance(method, Method) and 0.6 in jax.tree.leaves(method)"
    )


def test_packages_whose_names_load_on_use_have_them_all():
    loaded_by(
        "import importlib\n"
        "for name in ('losses', 'ensembles', 'models', 'methods'):\n"
        "    package = importlib.import_module(f'churn_jax.{name}')\n"
        "    assert set(package.__all__) <= set(dir(package)), name\n"
        "    for name in package.__all__: getattr(package, name)"
    )


@pytest.mark.parametrize("name", ["rich", "matplotlib"])
def test_the_probe_sees_what_is_loaded(name):
    assert loaded_by(f"import {name}") == [name]


def test_comparing_arrays_does_not_load_pyarrow():
    compared = "import churn_jax\nchurn_jax.compare([0, 1], [0, 1], labels=[0, 1])\n"
    loaded_by(f"{compared}assert 'pyarrow' not in sys.modules")


@pytest.mark.parametrize("written", [(), ("html",), ("json", "markdown")])
def test_what_compare_prints_and_writes_loads_nothing_that_it_can_do_without(
    written, tmp_path
):
    rows = "id,label,prob_a,prob_b\nx,a,0.9,0.1\ny,b,0.4,0.6\nz,b,0.3,0.7\n"
    for side in ("old", "new"):
        (tmp_path / f"{side}.csv").write_text(rows.replace("0.9,0.1", "0.2,0.8"))
    words = ["compare", str(tmp_path / "old.csv"), str(tmp_path / "new.csv")]
    for kind in written:
        words += [f"--{kind}", str(tmp_path / f"page.{kind}")]
    loaded_by(
        "import contextlib, io\n"
        "from churn_jax.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    assert main({words!r}) == 0\n"
        "heavy = {'jax', 'scipy', 'typeguard', 'matplotlib', 'PIL'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )

"""Importing the functions on arrays loads no trainer, no TensorFlow and no plotting."""

import subprocess
import sys

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


def run(code):
    """Runs code in a fresh interpreter; assertions there fail here."""
    code = f"import sys\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_losses_metrics_and_data_in_memory_are_light():
    run(
        f"heavy = set({HEAVY!r})\n"
        "import churn_jax\n"
        "assert not (heavy | {'jax'}) & set(sys.modules)\n"
        "import churn_jax.losses\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        # Metric states are flax.struct dataclasses, and flax itself loads rich.
        "import flax.struct\n"
        "of_flax = heavy & set(sys.modules)\n"
        "assert of_flax <= {'rich'}, of_flax\n"
        "import churn_jax.metrics\n"
        "assert heavy & set(sys.modules) == of_flax, heavy & set(sys.modules)\n"
        "import churn_jax.data as data; data.load('digits')\n"
        "names = {'tensorflow', 'tensorflow_datasets', 'grain'} & set(sys.modules)\n"
        "assert not names, names"
    )


ASKED = (
    "-h",
    *(f"{name} -h" for name in ("study", "sweep", "plan", "report")),
    *(f"{name} -h" for name in ("compare", "doctor")),
    "study --list",
    "study own -h",
    "study elodi-digits:tiny -h",
    "study clicks:tiny -h",
    "study digits --epochs 3 --set entropy.alpha=0.1 --print-config",
    "study --help-all",
    "studdy",
    "study digit",
    "study digits --epoch 3",
    "study digits --only baselin",
    "study digits --set baselin.beta=1",
    "sweep digits baselin.beta",
    "plan digits --row baselin",
    "doctor digit",
    "study click",
)


def test_compare_help_lists_mistakes_and_presets_need_no_jax(tmp_path):
    rows = "id,label,prob_a,prob_b\nx,a,0.9,0.1\ny,b,0.4,0.6\nz,b,0.3,0.7\n"
    for side in ("old", "new"):
        (tmp_path / f"{side}.csv").write_text(rows.replace("0.9,0.1", "0.2,0.8"))
    files = [str(tmp_path / name) for name in ("old.csv", "new.csv")]
    written = [
        [part for kind in kinds for part in (f"--{kind}", str(tmp_path / kind))]
        for kinds in ((), ("json", "markdown"))
    ]
    run(
        "import churn_jax, contextlib, io\n"
        "churn_jax.compare([0, 1], [0, 1], labels=[0, 1])\n"
        "assert 'pyarrow' not in sys.modules\n"
        "from churn_jax.cli import main\n"
        "def without(names, words, ended):\n"
        "    said = io.StringIO()\n"
        "    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):\n"
        "        try:\n"
        "            assert main(words) in ended\n"
        "        except SystemExit:\n"
        "            pass\n"
        "    found = names & set(sys.modules)\n"
        "    assert said.getvalue() and not found, (words, found)\n"
        "heavy = {'jax', 'matplotlib', 'typeguard', 'PIL'}\n"
        f"for written in {written!r}:\n"
        f"    without(heavy, {['compare', *files]!r} + written, [0])\n"
        "heavy = {'jax', 'matplotlib', 'flax', 'optax', 'orbax'}\n"
        f"for words in {ASKED!r}:\n"
        "    without(heavy, words.split(), [0, 2])\n"
        "assert 'churn_jax.reports.study_report' not in sys.modules\n"
        # Presets have no JAX, and once it is there their methods are pytrees.
        "from churn_jax.studies import PRESETS, preset\n"
        "for name in PRESETS: preset(name), preset(f'{name}:tiny')\n"
        "from tests.experiments.presets import STUDIES, study\n"
        "for name in STUDIES: study(name)\n"
        "config = preset('digits')\n"
        "method = config.spec('codistill_skl').method\n"
        "assert not {'jax', 'flax', 'optax'} & set(sys.modules)\n"
        "from churn_jax.studies.grid import Axis\n"
        "assert Axis.parse('entropy.alpha=0.1', config).values == (0.1,)\n"
        "from churn_jax.methods import Method\n"
        "import importlib, jax\n"
        "assert isinstance(method, Method) and 0.6 in jax.tree.leaves(method)\n"
        # Packages whose names load on use have them all.
        "for name in ('losses', 'ensembles', 'models', 'methods'):\n"
        "    package = importlib.import_module(f'churn_jax.{name}')\n"
        "    assert set(package.__all__) <= set(dir(package)), name\n"
        "    for name in package.__all__: getattr(package, name)"
    )

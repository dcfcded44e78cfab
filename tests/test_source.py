"""Install lines, badges, links and URLs follow the two settings of pyproject.toml.

`python -m tests.test_source` writes them: `[tool.churn-jax]` says where the repository
is and whether the package is on PyPI.
"""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = "pyproject.toml"
PAGES = ("README.md", "docs/start/install.md", "docs/how_to/gpus.md")
WORKFLOWS = ("docs/how_to/gate_in_ci.md", "experiments/compare/github-actions.yml")
RECIPES = {
    "experiments/launch/recipes/tpu_vm.sh": "[tpu]",
    "experiments/launch/recipes/workstation_gpu.sh": "[cuda]",
}
NOTEBOOKS = sorted(f"colabs/{path.name}" for path in (ROOT / "colabs").glob("*.ipynb"))
PLACES = (PYPROJECT, *PAGES, *WORKFLOWS, *RECIPES, *NOTEBOOKS)

NAME = r"churn-jax(?P<extra>\[\w+\])?(?: @ [^\s\"'}]+)?"
ALONE = r"churn-compare(?: @ [^\s\"'}]+)?"
FROM_VARIABLE = "${CHURN_COMPARE:?Set CHURN_COMPARE to the source of churn-compare.}"
FROM_GITHUB = 'env: {CHURN_COMPARE: "${{ vars.CHURN_COMPARE }}"}'
BADGE = re.compile(r"\[!\[Open in Colab\].*\n\n")
LINK = re.compile(
    r"\]\((?:\.\./|https://[^)\s]+/blob/main/)((?:docs|colabs|experiments)/[^)\s]+\))"
)
COLAB = "https://colab.research.google.com/"


def settings_of(root: Path) -> dict:
    return tomllib.loads((root / PYPROJECT).read_text())["tool"]["churn-jax"]


def requirement(settings: dict, extra: str = "") -> str:
    """What pip is given, or "" while the package can be had from a clone only."""
    if settings["published"]:
        return f"churn-jax{extra}"
    source = settings["repository"]
    return f"churn-jax{extra} @ git+{source}" if source else ""


def alone(settings: dict) -> str:
    """The same for the comparison without the rest."""
    known = requirement(settings).replace("jax", "compare", 1)
    return f"{known}#subdirectory=compare" if " @ " in known else known


def badge(settings: dict, notebook: str) -> str:
    found = re.fullmatch(r"https://github\.com/([^/]+/[^/]+)", settings["repository"])
    if not found:
        return ""
    address = f"{COLAB}github/{found[1]}/blob/main/{notebook}"
    return f"[![Open in Colab]({COLAB}assets/colab-badge.svg)]({address})\n\n"


def page(text: str, settings: dict) -> str:
    def line(match):
        extra = match["extra"] or match["local"] or ""
        if known := requirement(settings, extra):
            return f"pip install {quoted(known)}"
        local, name = f"./compare {quoted(f'.{extra}')}", quoted(f"churn-jax{extra}")
        return f"pip install {local}  # in a clone; once published: pip install {name}"

    local = r"\./compare \"?\.(?P<local>\[\w+\])?"
    wanted = rf'^pip install "?(?:{local}|{NAME})"?(?:  # in a clone.*)?$'
    text = re.sub(wanted, line, text, flags=re.M)
    known = "./compare  # in a clone; once published: pip install churn-compare"
    known = quoted(alone(settings)) or known
    wanted = r'^pip install (?:"?churn-compare[^"\n]*"?|\./compare  # in a clone.*)$'
    return re.sub(wanted, f"pip install {known}", text, flags=re.M)


def quoted(requirement: str) -> str:
    return f'"{requirement}"' if re.search(r"[\[ ]", requirement) else requirement


def workflow(text: str, settings: dict) -> str:
    known = alone(settings)
    environment = rf"(?:\n +{re.escape(FROM_GITHUB)})?"

    def line(match):
        if known:
            return match["start"] + quoted(known)
        given = f'{match["start"]}"{FROM_VARIABLE}"'
        if match["run"]:
            given += f"\n{match['indent']}  {FROM_GITHUB}"
        return given

    wanted = (
        r"^(?P<start>(?P<indent> *)- (?P<run>run: )?pip install (?:[\w-]+ )*?)"
        rf'"?(?:{re.escape(FROM_VARIABLE)}|{ALONE})"?{environment}$'
    )
    return re.sub(wanted, line, text, flags=re.M)


def recipe(text: str, settings: dict, extra: str) -> str:
    known = requirement(settings, extra)
    return re.sub(r"\$\{SOURCE:-.*?\}", lambda _: f"${{SOURCE:-{known}}}", text)


def notebook(text: str, settings: dict, place: str) -> str:
    content = json.loads(text)
    address, known = settings["repository"], f'SOURCE = "{requirement(settings)}"'
    linked = rf"]({address}/blob/main/\1" if address else r"](../\1"
    for cell in content["cells"]:
        lines = (LINK.sub(linked, line) for line in cell["source"])
        cell["source"] = [re.sub('^SOURCE = ".*?"', known, line) for line in lines]
    title = content["cells"][0]
    words = BADGE.sub("", "".join(title["source"]))
    heading, rest = words.split("\n\n", 1)
    words = f"{heading}\n\n{badge(settings, place)}{rest}"
    title["source"] = words.splitlines(keepends=True)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def project(text: str, settings: dict) -> str:
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)*\n", "", text)
    address = settings["repository"]
    other = "==" + tomllib.loads(text)["project"]["version"]
    if address and not settings["published"]:
        other = f" @ git+{address}#subdirectory=compare"
    text = re.sub(r'"churn-compare[^"]*"', f'"churn-compare{other}"', text)
    if not address:
        return text
    urls = f'[project.urls]\nRepository = "{address}"\n'
    urls += f'Changelog = "{address}/blob/main/CHANGELOG.md"\n\n'
    before = "[project.optional-dependencies]"
    return text.replace(before, urls + before)


def written(root: Path, place: str, settings: dict) -> str:
    """The text of `place` as the settings want it."""
    text = (root / place).read_text()
    if place == PYPROJECT:
        return project(text, settings)
    if place in NOTEBOOKS:
        return notebook(text, settings, place)
    if place in RECIPES:
        return recipe(text, settings, RECIPES[place])
    if place in WORKFLOWS:
        return workflow(text, settings)
    if place == "README.md":
        quickstart = badge(settings, "colabs/quickstart.ipynb")
        text = BADGE.sub("", text)
        text = text.replace("\n![", f"\n{quickstart}![", 1)
    return page(text, settings)


def write(root: Path, settings: dict) -> None:
    for place in PLACES:
        (root / place).write_text(written(root, place, settings))


@pytest.mark.parametrize("place", PLACES)
def test_it_says_what_the_settings_say(place):
    wanted = written(ROOT, place, settings_of(ROOT))
    assert (ROOT / place).read_text() == wanted, "run `python -m tests.test_source`"


@pytest.mark.parametrize(
    ("host", "published"), [("github.com/somebody", False), ("git.example.org", True)]
)
def test_the_settings_reach_every_place_and_leave_it_again(host, published, tmp_path):
    settings = {"repository": f"https://{host}/place", "published": published}
    source = "" if published else f" @ git+https://{host}/place"
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text((ROOT / place).read_text())
    write(tmp_path, settings)
    texts = {place: (tmp_path / place).read_text() for place in PLACES}
    for place, text in texts.items():
        extra = {**RECIPES, "docs/how_to/gpus.md": "[cuda]"}.get(place, "")
        shows = place == "README.md" or place in NOTEBOOKS
        on_github = settings["repository"].startswith("https://github.com")
        assert (COLAB in text) == (shows and on_github), place
        assert "in a clone; once published" not in text, place
        assert "CHURN_COMPARE" not in text, place
        if place in WORKFLOWS:
            assert f"churn-compare{source}" in text, place
        elif place != PYPROJECT:
            assert "](../" not in text or place not in NOTEBOOKS, place
            assert f"churn-jax{extra}{source}" in text, place
    urls = tomllib.loads(texts[PYPROJECT])["project"]["urls"]
    assert urls["Repository"] == settings["repository"]
    write(tmp_path, settings)  # twice is once
    assert {place: (tmp_path / place).read_text() for place in PLACES} == texts

    write(tmp_path, settings_of(ROOT))
    for place in PLACES:
        assert (tmp_path / place).read_text() == (ROOT / place).read_text()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_no_address_of_this_package_is_made_up():
    pattern = r"git(hub|lab)\.com/[A-Za-z0-9_-]+/churn[_-]jax"
    done = subprocess.run(
        ["git", "grep", "-IohE", pattern], cwd=ROOT, capture_output=True, text=True
    )
    address = settings_of(ROOT)["repository"]
    assert [found for found in done.stdout.split() if found not in address] == []


if __name__ == "__main__":
    write(ROOT, settings_of(ROOT))

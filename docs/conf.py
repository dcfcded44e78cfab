"""How Sphinx builds the site: `make docs`."""

import sys
import tomllib
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS / "extensions"))

settings = tomllib.loads((ROOT / "pyproject.toml").read_text())

project = "churn_jax"
author = settings["project"]["authors"][0]["name"]
copyright = f"2026, {author}"
version = release = settings["project"]["version"]
repository = settings["tool"]["churn-jax"]["repository"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_llm.txt",
    # Ours, in docs/extensions.
    "generated",
    "links",
    "mathml",
]
exclude_patterns = ["_build", "extensions", "README.md"]
nitpicky = False

# Pages are MyST Markdown, tutorials are stored executions.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_merge_streams = True

# Docstrings: Google style, code in single backticks, linked where it is a public name.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "churn_jax"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "churn_jax"},
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    **({"github_url": repository} if repository else {}),
}
html_sidebars = {"index": []}

llms_txt_description = settings["project"]["description"]
llms_txt_summary_enabled = False
churn_repository = repository

"""How Sphinx builds the site: `make docs`."""

import shutil
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
    "sphinx_copybutton",
    "sphinx_design",
    # Ours, in docs/extensions. `api` writes the pages that sphinx_llm reads, too.
    "api",
    "generated",
    "links",
    "llms",
    "mathml",
    "sphinx_llm.txt",
]
exclude_patterns = ["_build", "extensions", "templates", "README.md"]
templates_path = ["templates"]
nitpicky = False

# Pages are MyST Markdown, tutorials are the notebooks as they are stored.
for old in (DOCS / "tutorials").glob("*.ipynb"):
    old.unlink()
for notebook in (ROOT / "colabs").glob("*.ipynb"):
    shutil.copy2(notebook, DOCS / "tutorials")
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables of outputs, too

# The API reference, from docs/extensions/api.py.
python_maximum_signature_line_length = 76
python_use_unqualified_type_names = True
html_use_index = html_domain_indices = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "churn_jax"
html_static_path = ["static"]
# The reports that docs/gallery/build.py made; without them their links lead nowhere.
gallery = DOCS / "_build" / "gallery" / "site"
html_extra_path = [str(gallery)] if gallery.is_dir() else []
html_favicon = "static/logo.svg"
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "logo": {
        "text": "churn_jax",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
    },
    "navigation_depth": 2,
    "show_toc_level": 2,
    "header_links_before_dropdown": 8,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "results/index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    **({"github_url": repository} if repository else {}),
}
html_sidebars = {"index": [], "gallery/index": [], "reference/api/**": ["api-nav.html"]}

llms_txt_description = settings["project"]["description"]
llms_txt_summary_enabled = False
llms_txt_suffix_mode = "append"
llms_txt_build_parallel = False  # so that it reads what has been read already
# docs/extensions/llms.py writes the list; what sphinx_llm would say takes two minutes.
llms_txt_exclude = ["**"]
llms_txt_nested_enabled = False
churn_repository = repository

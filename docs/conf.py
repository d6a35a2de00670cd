"""The site: `./lab docs` builds it (docs/make.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from attnlab import __version__

project, author, version = "attnlab", "The attnlab developers", __version__
copyright = "The attnlab developers, Apache licence 2.0"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "extension.accessible",
    "extension.citation",
    "extension.colab",
    "extension.commands",
    "extension.docstrings",
    "extension.fields",
    "extension.mathematics",
    "extension.names",
    "extension.papers",
    "extension.playground",
    "extension.schema",
    "extension.sources",
    "extension.symbols",
]
exclude_patterns = ["wikitext/**"]  # parts of the gallery
nitpicky = False  # types of other libraries have no pages here

# Markdown as a code host reads it, with mathematics between dollars
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
smartquotes = False  # "--out" is an option
suppress_warnings = ["myst.header", "ref.python"]  # pages may skip a level; types are named alike

# Notebooks are executed when the site is built; make.py says where what they show is kept
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_in_temp = True  # what they write goes with it
nb_execution_raise_on_error = True
nb_ipywidgets_js = {}  # which would be asked of another host

default_role = "py:obj"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes as a list, beside what is a member already
napoleon_attr_annotations = False  # signatures have them
python_use_unqualified_type_names = True
toc_object_entries = False  # each page begins with a table of its names

html_theme = "furo"
html_title = f"attnlab {__version__}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "extension" / "search.js")
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

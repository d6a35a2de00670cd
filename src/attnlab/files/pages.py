"""Templates of pages: Markdown, or HTML that needs nothing beside itself."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from attnlab.files.mathematics import typeset, typeset_plain


def template(package: str, name: str, **filters: Any) -> Template:
    """Read a template of a package.

    In HTML every text is escaped. `{{ stylesheet }}` is the one stylesheet; `text | typeset` sets
    formulas between dollars, and `text | letters` the symbols of a plain text.
    """
    is_html = name.endswith(".html")
    made = Environment(
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not is_html,
    )
    made.globals["stylesheet"] = stylesheet()
    made.filters |= {"typeset": typeset, "letters": typeset_plain, **filters}
    return made.from_string(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def stylesheet() -> Markup:
    """Return the stylesheet of every page."""
    return Markup(resources.files("attnlab.files").joinpath("page.css").read_text(encoding="utf-8"))

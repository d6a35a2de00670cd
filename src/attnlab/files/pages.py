"""Pages: how the HTML that attnlab writes looks, which needs nothing beside itself."""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from attnlab.files.mathematics import typeset, typeset_plain


def environment() -> Environment:
    """What templates of pages are read with.

    Every text is escaped. `{{ stylesheet }}` is the one stylesheet; `text | typeset` sets formulas
    between dollars, and `text | letters` the letters of a plain text.
    """
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals["stylesheet"] = stylesheet()
    made.filters |= {"typeset": typeset, "letters": typeset_plain}
    return made


def stylesheet() -> Markup:
    """How every page looks."""
    return Markup(resources.files("attnlab.files").joinpath("page.css").read_text(encoding="utf-8"))

"""Files of the repository that pages link to, as pages of the site.

On a code host `../src/attnlab/...` leads to the file. Here it leads to a page with its text; so
does the word "source" at each public name.
"""

from __future__ import annotations

import inspect
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".json": "json",
    ".md": "markdown",
    ".js": "javascript",
}

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<link rel="stylesheet" href="{up}_static/pygments.css">
<link rel="stylesheet" href="{up}_static/site.css">
</head>
<body class="source-page">
<p><a href="{up}index.html">attnlab</a> / {title}</p>
{code}
</body>
</html>
"""


class SourceLinks(SphinxTransform):
    default_priority = 870  # before files to download are collected

    def apply(self, **_: Any) -> None:
        for link in list(self.document.findall(addnodes.download_reference)):
            here = Path(self.env.doc2path(self.env.docname)).parent
            path = (here / link["reftarget"]).resolve()
            found = nodes.reference("", "", *link.children, internal=True, refuri=self._page(path))
            link.replace_self(found)
        for signature in list(self.document.findall(addnodes.desc_signature)):
            self._add_source(signature)

    def _add_source(self, signature: addnodes.desc_signature) -> None:
        name = signature.get("fullname", "")
        if not name or "." in name:
            return
        value = getattr(import_module(signature["module"]), name, None)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            return
        value = inspect.unwrap(value)  # a decorator's wrapper stands in another file
        path, line = Path(inspect.getsourcefile(value) or ""), inspect.getsourcelines(value)[1]
        link = nodes.reference("", "", internal=True, refuri=f"{self._page(path)}#line-{line}")
        link += nodes.inline("", "[source]", classes=["viewcode-link"])
        signature += link

    def _page(self, path: Path) -> str:
        """The address of a file's page, which is made at the end."""
        page = f"source/{path.relative_to(ROOT)}"
        _pages(self.env).setdefault(self.env.docname, {})[page] = path
        return self.app.builder.get_relative_uri(self.env.docname, page)


def _pages(env: BuildEnvironment) -> dict[str, dict[str, Path]]:
    """Return the files that each page links to; kept with the parsed pages for the next build."""
    if not hasattr(env, "source_pages"):
        env.source_pages = {}  # type: ignore[attr-defined]
    return env.source_pages  # type: ignore[attr-defined]


def _forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _pages(env).pop(docname, None)


def _make(app: Sphinx, problem: Exception | None) -> None:
    """Plain pages: with the theme's navigation they would take longer than all else."""
    if problem is not None:
        return
    linked = {page: path for of in _pages(app.env).values() for page, path in of.items()}
    for page, path in linked.items():
        text, language = path.read_text(encoding="utf-8"), LANGUAGES.get(path.suffix, "text")
        made = Path(app.outdir) / f"{page}.html"
        made.parent.mkdir(parents=True, exist_ok=True)
        shown = PAGE.format(
            title=escape(page.removeprefix("source/")),
            up="../" * page.count("/"),
            code=app.builder.highlighter.highlight_block(text, language, lineanchors="line"),
        )
        made.write_text(shown, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(SourceLinks)
    app.connect("env-purge-doc", _forget)
    app.connect("build-finished", _make)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

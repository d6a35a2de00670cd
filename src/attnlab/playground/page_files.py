"""The files of the page, by the path under which a browser asks for them."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

Files = dict[str, tuple[str, bytes]]  # media type and content by path

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    "": "text/plain; charset=utf-8",  # a licence
}
MARK = b"<!-- api -->"


def page_files(*, api: str | None = None) -> Files:
    """All of them; with `api`, the page is told where to ask for what it does not compute."""
    found: Files = {}

    def walk(folder: Traversable, path: str) -> None:
        for item in folder.iterdir():
            if item.is_dir():
                walk(item, f"{path}{item.name}/")
                continue
            suffix = item.name[item.name.rindex(".") :] if "." in item.name else ""
            if suffix in TYPES:
                found[f"{path}{item.name}"] = TYPES[suffix], item.read_bytes()

    walk(resources.files("attnlab.playground") / "page", "/")
    if api is not None:
        kind, page = found["/index.html"]
        mark = f'<meta name="attnlab-api" content="{api}">'.encode()
        found["/index.html"] = kind, page.replace(MARK, mark)
    found["/"] = found["/index.html"]
    return found

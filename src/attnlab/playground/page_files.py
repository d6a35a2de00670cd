"""Files of the page, by the path that a browser requests, and all of them as one file."""

from __future__ import annotations

import json
import re
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
    """Return all files; with `api`, the page knows where to ask for what it does not compute."""
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


def page_texts() -> dict[str, str]:
    """Return the files as texts by their paths, for a browser to assemble."""
    return {path: content.decode() for path, (_, content) in page_files().items() if path != "/"}


def single_page() -> str:
    """Return the whole page as one file, which works where it is opened from a folder.

    A browser loads no modules from files. So they are texts inside it, of which it makes modules
    itself.
    """
    files = page_texts()
    index, style = files.pop("/index.html"), files.pop("/style.css")
    # in a script, only this sign could end it
    texts = json.dumps(files).replace("<", "\\u003c")
    script = resources.files("attnlab.playground").joinpath("assembled.js").read_text()
    begin = (
        f"<script>{script}const made = assembled({texts});"
        "globalThis.attnlabWorker = made.worker; import(made.main)</script>"
    )
    index = re.sub(r' *<link rel="modulepreload"[^>]*>\n', "", index)
    index = index.replace('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>")
    whole = index.replace('<script type="module" src="main.js"></script>', "")
    return whole.replace("</body>", f"{begin}\n</body>")

"""What to cite, as `attnlab cite` prints it.

```{citation}
```
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlab.shelf import shelf
from attnlab.shelf.papers import ATTNLAB_BIBTEX


class Citation(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        papers = [known for known in shelf().papers if known.reading != "ours"]
        entries = (*(known.citation for known in papers), ATTNLAB_BIBTEX)
        return [nodes.literal_block(text, text, language="bibtex") for text in entries]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("citation", Citation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

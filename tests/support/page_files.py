"""The playground's page on a port of its own, as any static host would serve it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attnlab

FOLDER = Path(attnlab.__file__).parent / "playground" / "page"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Nothing."""


@contextmanager
def served() -> Iterator[str]:
    """The address of the folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(FOLDER)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()

"""./lab docs: builds the site, and shows it."""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DOCS = Path(__file__).parent
OUT = DOCS.parent / "out" / "site"


def build(out: Path) -> int:
    """Build all of it afresh, and put it in place when it is whole; a warning is an error.

    What notebooks show is kept beside it for as long as the code is the same.
    """
    from sphinx.cmd.build import main

    from attnlab.files.code import code_digest

    kept = out.parent / "notebooks" / code_digest("")[:16]
    for old in kept.parent.glob("*"):
        if old != kept:
            shutil.rmtree(old)
    out.parent.mkdir(parents=True, exist_ok=True)
    gc.disable()  # all pages live until the end; looking through them takes a seventh of the time
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as work:
        made, doctrees = Path(work, "html"), Path(work, "doctrees")
        failed = main([
            "--quiet", "--fail-on-warning", "--keep-going", "--builder", "html",
            "-D", f"nb_execution_cache_path={kept}", "-d", str(doctrees), str(DOCS), str(made),
        ])  # fmt: skip
        if not failed:
            for part in ("objects.inv", ".buildinfo"):  # for other sites and other builds
                (made / part).unlink(missing_ok=True)
            shutil.rmtree(out, ignore_errors=True)
            made.rename(out)
    gc.enable()
    return failed


def serve(out: Path, port: int) -> None:
    """Show it on this machine alone, until Ctrl-C."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(out))
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def main() -> None:
    parser = argparse.ArgumentParser(prog="./lab docs", description="Build the site.")
    parser.add_argument("--out", type=Path, default=OUT, help="Where to (default: out/site).")
    parser.add_argument("--serve", action="store_true", help="Show it on this machine, then.")
    parser.add_argument("--port", type=int, default=0, help="For --serve (default: a free one).")
    given = parser.parse_args()
    from attnlab.files.progress import waiting

    with waiting("building the site; its notebooks run when the code has changed"):
        failed = build(given.out.resolve())
    if failed:
        sys.exit(1)
    print(f"wrote {given.out}")
    if given.serve:
        serve(given.out, given.port)


if __name__ == "__main__":
    main()

"""./lab docs: build the site, and serve it on this machine."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attnlab
from attnlab.cli import signals
from attnlab.cli.exit_codes import BAD_INPUT
from attnlab.cli.printing import open_streams
from attnlab.files.errors import InputError
from attnlab.files.folders import HEADING, LIST, claim, listed, refuse_links
from attnlab.files.progress import waiting

DOCS = Path(__file__).parent
OUT = DOCS.parent / "out" / "site"
NOTEBOOKS = OUT.parent / "notebooks"  # outputs of notebooks, wherever the site goes
# All pages live until the end; looking through them for garbage takes a seventh of the time.
SPHINX = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main())"


def build(out: Path, notebooks: bool = True) -> int:
    """Build the whole site, and put it in place when it is complete; return Sphinx's exit code.

    A warning is an error. Outputs of notebooks are kept for as long as the code and the libraries
    are the same; without `notebooks` their pages have no outputs.
    """
    check_own(out)
    kept = _notebooks()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as work:
        made = Path(work, "html")
        # pages without outputs are not kept: the next build would take them for the whole ones
        doctrees = _doctrees(kept) if notebooks else Path(work, "doctrees")
        failed = _sphinx(
            "--quiet",
            "--fail-on-warning",
            "--keep-going",
            "--builder",
            "html",
            "-D",
            f"nb_execution_cache_path={kept}",
            "-D",
            f"nb_execution_mode={'cache' if notebooks else 'off'}",
            "-d",
            str(doctrees),
            str(DOCS),
            str(made),
        )
        if not failed:
            for part in ("objects.inv", ".buildinfo"):  # for other sites and other builds
                (made / part).unlink(missing_ok=True)
            names = sorted(str(path.relative_to(made)) for path in made.rglob("*"))
            (made / LIST).write_text("\n".join((HEADING, *names, "")), encoding="utf-8")
            check_own(out)  # again: the build took minutes
            if out.exists():
                out.rename(Path(work, "before"))
            made.rename(out)
    return failed


def check_own(out: Path) -> None:
    """Refuse a folder that holds anything that an earlier build did not make.

    A build replaces the whole folder, so that nobody else's file may be in it.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"out: {out} is not a folder; give another path")
    refuse_links(out / LIST, inside=out)
    own = {LIST, *listed(out)}
    for path in sorted(out.rglob("*")):
        if str(path.relative_to(out)) not in own:
            raise InputError(
                f"{path}: is not on the list of what ./lab docs made ({LIST}), and a build "
                "replaces the whole folder; give --out another folder, or move it away (delete "
                f"{out} if an older version of attnlab built it)"
            )


def _notebooks() -> Path:
    """Return the folder for outputs of notebooks, and remove those of earlier versions."""
    from attnlab.files.provenance import code_digest, digest_of, versions

    name = digest_of([code_digest(""), versions()])[:16]
    claim(NOTEBOOKS, [name])
    for old in listed(NOTEBOOKS):
        path = NOTEBOOKS / old
        if old != name and path.parent == NOTEBOOKS and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    return NOTEBOOKS / name


def _doctrees(kept: Path) -> Path:
    """Return the folder for parsed pages, which are kept while what they are generated from is."""
    sha = hashlib.sha256()
    for folder in (DOCS / "extension", Path(attnlab.__file__).parent):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                sha.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    key, doctrees = kept / "doctrees.key", kept / "doctrees"
    if not key.is_file() or key.read_text() != sha.hexdigest():
        shutil.rmtree(doctrees, ignore_errors=True)
        doctrees.mkdir(parents=True)
        key.write_text(sha.hexdigest())
    return doctrees


def _sphinx(*arguments: str) -> int:
    """Run Sphinx in a process of its own, and end it with all that it started on a signal.

    Sphinx cannot answer signals itself while it executes notebooks: nbclient takes them, ends one
    kernel, and goes on.
    """
    import psutil

    # in a session of its own, so that the terminal's Ctrl-C reaches this process alone
    sphinx = psutil.Popen([sys.executable, "-c", SPHINX, *arguments], start_new_session=True)
    try:
        return int(sphinx.wait())
    except BaseException:
        for process in (*sphinx.children(recursive=True), sphinx):  # kernels have own sessions
            with suppress(psutil.NoSuchProcess):
                process.kill()
        sphinx.wait()
        raise


def server_of(out: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of a folder, on this machine alone."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(out))
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def serve(server: ThreadingHTTPServer) -> None:
    """Serve the site on this machine alone, until Ctrl-C."""
    print(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)", flush=True)
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 65535, got {text!r}")
    return int(text)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="./lab docs", description="Build the site.")
    parser.add_argument("--out", type=Path, default=OUT, help="Where to (default: out/site).")
    parser.add_argument(
        "--no-notebooks", action="store_true", help="Do not run notebooks; leave out their outputs."
    )
    parser.add_argument("--serve", action="store_true", help="Show it on this machine, then.")
    parser.add_argument("--port", type=_port, default=0, help="For --serve (default: a free one).")
    given = parser.parse_args()
    out = given.out.resolve()
    server = None
    if given.serve:  # before the build, so that a port in use is reported at once
        try:
            server = server_of(out, given.port)
        except OSError as problem:
            parser.error(f"--port {given.port}: {problem.strerror}; give another, or none")
    with waiting("building the site; its notebooks run when the code has changed"):
        failed = build(out, notebooks=not given.no_notebooks)
    if failed:
        return 1
    print(f"wrote {given.out}", flush=True)
    if server is not None:
        serve(server)
    return 0


def main() -> None:
    open_streams()
    signals.listen()
    try:
        sys.exit(_main())
    except KeyboardInterrupt:
        print("docs: stopped", file=sys.stderr)
        signals.leave()
    except (InputError, OSError) as problem:
        print(f"docs: {problem}", file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()

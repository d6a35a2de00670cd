"""The server: the page for each visitor, and files of what they see."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import panel as pn
from tornado.web import HTTPError, RequestHandler

from attnlab.dynamics import Diverged
from attnlab.files.errors import InputError
from attnlab.files.netcdf import save
from attnlab.playground.page import POOL, TITLE, Page
from attnlab.playground.presets import DEFAULT
from attnlab.playground.run import Run, run, table
from attnlab.playground.setting import Setting
from attnlab.playground.state import KEY, State, from_query
from attnlab.plots import bars

LARGEST_MESSAGE = 2**23  # bytes that a browser may send at once: the largest file, escaped
LOOPBACK = ("127.0.0.1", "localhost")


def visit(start: State) -> Any:
    """The page of a new visitor, in the state of the link that was followed, else at the start."""
    problem = ""
    query = pn.state.location.search if pn.state.location is not None else ""
    try:
        state = from_query(query) if KEY in query else start
    except InputError as error:
        state, problem = start, str(error)
    return Page(state, document=pn.state.curdoc, problem=problem).layout


def netcdf(run: Run) -> bytes:
    """A run as the netCDF file that `attnlab.load` reads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.nc"
        save(run.result, path)
        return path.read_bytes()


def csv(run: Run) -> bytes:
    """A run as a table."""
    return bytes(table(run).to_csv(index=False).encode())


def picture(run: Run) -> bytes:
    """Attention of a run at a few moments, as `attnlab simulate --plot` draws it."""
    import io

    out = io.BytesIO()
    bars(run.result).savefig(out, format="png", dpi=160)
    return out.getvalue()


FILES: dict[str, tuple[str, Callable[[Run], bytes]]] = {
    "run.nc": ("application/x-netcdf", netcdf),
    "run.csv": ("text/csv; charset=utf-8", csv),
    "run.png": ("image/png", picture),
}


class Download(RequestHandler):
    """download/NAME?s=...: run A of a link as a file. Made in a thread, so that no one waits."""

    async def get(self, name: str) -> None:
        if name not in FILES:
            raise HTTPError(404)
        kind, make = FILES[name]
        loop = asyncio.get_running_loop()
        try:
            state: State = from_query(self.request.query)
            content = await loop.run_in_executor(POOL, lambda: make(run(state.a)))
        except (InputError, ArithmeticError) as error:
            self.set_status(400)
            self.finish(str(error))
            return
        self.set_header("Content-Type", kind)
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        self.finish(content)


def server(
    *,
    port: int,
    address: str = "127.0.0.1",
    origins: Sequence[str] = (),
    start: State = DEFAULT.state,
) -> Any:
    """A server of the playground, not started yet; its pages open in the state `start`.

    Only pages that it served itself may open a websocket to it: those of this machine, and those
    under `origins` (HOST:PORT), where browsers on other machines are to reach it.
    """
    pn.extension()
    try:
        return pn.io.server.get_server(
            {"/": lambda: visit(start)},
            port=port,
            address=address,
            title=TITLE,
            websocket_origin=[*(f"{host}:{port}" for host in LOOPBACK), *origins],
            websocket_max_message_size=LARGEST_MESSAGE,
            extra_patterns=[(r"/download/([a-z.]+)", Download)],
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(
            f"port: cannot listen on {address}:{port} ({reason}); choose another with --port"
        ) from error


def serve(server: Any, start: State = DEFAULT.state) -> None:
    """Serve until interrupted."""
    warm_up(start.a)
    server.start()
    server.io_loop.start()


def warm_up(first: Setting) -> threading.Thread:
    """Compile, in the background, what the first turns of a control will need."""

    def work() -> None:
        turns = (("optimizer", "adam"), ("momentum", 0.0), ("length", None))
        for setting in (first, *(first.turned(*turn) for turn in turns)):
            with suppress(Diverged):  # on classes of one's own; the page says so when asked
                run(setting)

    thread = threading.Thread(target=work, name="warm-up", daemon=True)
    thread.start()
    return thread

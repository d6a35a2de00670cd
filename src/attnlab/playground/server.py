"""The server of `attnlab play`: the page, which is one file, and its API on the same address.

GET  /   the page
POST /api/simulate, /api/netcdf   a Simulation document in, a result out

Requests are taken only under the server's own names (Host), and from its own pages (Origin): no
other page can reach it through a visitor's browser.
"""

from __future__ import annotations

import io
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attnlab.files.errors import InputError
from attnlab.playground.single_page import policy, single_page
from attnlab.playground.workers import Workers

LARGEST_REQUEST = 1_000_000  # bytes: 20 classes of a text have 400,000
MOST_CONNECTIONS = 64
REQUEST_SECONDS = 10.0  # for a visitor to send a whole request, and to take the answer
ROOM_SECONDS = 1.0  # for a connection that was closed to make room
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Server(ThreadingHTTPServer):
    """The page and its API; `with` it, until it is stopped."""

    daemon_threads = True

    def __init__(
        self,
        *,
        port: int,
        address: str = "127.0.0.1",
        origins: Sequence[str] = (),
        start: dict[str, Any] | None = None,
        links: str | None = None,
        workers: Workers | None = None,
    ) -> None:
        """start: the state that pages open on. origins: HOST:PORT under which others reach it.

        links: address of a published page, for links to what is shown.
        """
        self.workers = Workers() if workers is None else workers
        try:
            super().__init__((address, port), Handler)
        except (OSError, OverflowError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise InputError(
                f"port: cannot listen on {address}:{port} ({reason}); choose another with --port"
            ) from error
        self.names = {*(f"{name}:{self.server_port}" for name in LOOPBACK), *origins}
        page = single_page(start, api="api", address=links)
        self.page, self.headers = (
            page.encode(),
            {**HEADERS, "Content-Security-Policy": policy(page)},
        )
        self.room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.sending: dict[Any, None] = {}  # connections whose requests are not whole, by age

    @property
    def url(self) -> str:
        """Address for a browser on this machine."""
        host = str(self.server_address[0])
        return f"http://{'127.0.0.1' if host in ('0.0.0.0', '') else host}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; with too many connections, close the one that has sent longest."""
        if not self.room.acquire(blocking=False):
            with suppress(StopIteration, OSError):
                next(iter(self.sending.copy())).shutdown(socket.SHUT_RDWR)
            if not self.room.acquire(timeout=ROOM_SECONDS):
                self.shutdown_request(request)
                return
        self.sending[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started, which would have made room again
            self.sending.pop(request, None)
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one visitor."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.sending.pop(request, None)
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore dropped connections; log other errors."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Stop listening, and end what computes."""
        super().server_close()
        self.workers.end()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version, sys_version = "attnlab", ""

    def setup(self) -> None:
        """Read with a deadline for the whole request: one byte at a time would never end."""
        super().setup()
        self.connection.settimeout(REQUEST_SECONDS)
        self.rfile = io.BufferedReader(_Until(self.connection))

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Send the page."""
        if not self._allowed():
            return
        if self.path.partition("?")[0] in ("/", "/index.html"):
            self._send(200, "text/html; charset=utf-8", self.server.page)
        else:
            self._refuse(404, "there is no such file")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Send a run."""
        if not self._allowed():
            return
        verb = self.path.removeprefix("/api/")
        if verb not in ("simulate", "netcdf") or not self.path.startswith("/api/"):
            return self._refuse(404, "there is no such verb")
        if self.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
            return self._refuse(415, "send JSON")
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or len(length) > 18:
            return self._refuse(411, "say how long it is")
        if int(length) > LARGEST_REQUEST:
            return self._refuse(413, f"a page may send {LARGEST_REQUEST:,} bytes")
        try:
            document = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return self._refuse(400, "not JSON")
        self.server.sending.pop(self.connection, None)
        answer = self.server.workers.ask(verb, document, self._gone)
        good = answer.status == 200 and verb == "netcdf"
        self._send(
            answer.status, "application/x-netcdf" if good else "application/json", answer.content
        )

    def _allowed(self) -> bool:
        """Check that the request came under our name, and from our own page if from any."""
        names = self.server.names
        origin, host = self.headers.get("Origin"), self.headers.get("Host", "")
        elsewhere = origin is not None and origin.partition("://")[2] not in names
        if self.command == "POST" and self.headers.get("Sec-Fetch-Site") == "cross-site":
            elsewhere = True
        if host not in names:
            self._refuse(403, "this server is not called that; see attnlab play --origin")
        elif elsewhere:
            self._refuse(403, "a page from elsewhere may not ask")
        return host in names and not elsewhere

    def _gone(self) -> bool:
        """Check whether the visitor has closed the connection."""
        try:
            if not select.select([self.connection], [], [], 0)[0]:
                return False
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def _refuse(self, status: int, words: str) -> None:
        self._send(status, "application/json", json.dumps({"error": words}).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.close_connection = True
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
        except OSError:
            pass  # gone


class _Until(io.RawIOBase):
    """Reads from a connection until REQUEST_SECONDS after it was made."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.end = connection, time.monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self.connection.settimeout(left)
        try:
            return self.connection.recv_into(buffer)
        finally:
            self.connection.settimeout(REQUEST_SECONDS)  # the answer has its own


def serve(*, up: Callable[[str], None], **given: Any) -> None:
    """Serve until interrupted; `up` hears the address."""
    with serving(**given) as server:
        up(server.url)
        while True:
            time.sleep(3600)


@contextmanager
def serving(**given: Any) -> Iterator[Server]:
    """Run a server in its own thread while the block runs."""
    server = Server(**given)
    thread = threading.Thread(target=server.serve_forever, name="playground", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

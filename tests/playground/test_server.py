"""The server under friendly and hostile requests: it reads nothing else, and holds up nobody."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_run import LIMIT, of_page

import attnlab
from attnlab.cli.options import MODELS
from attnlab.files.errors import InputError
from attnlab.playground import server as module
from attnlab.playground.opening import NAMES, asked, opening
from attnlab.playground.server import MOST_CONNECTIONS, Server, serving
from attnlab.playground.single_page import BEGIN
from attnlab.playground.workers import Workers
from attnlab.simulation import Gradient, Motion, Simulation, as_simulation
from attnlab.tasks.classes import classes_from, presets, write_classes

JSON = {"Content-Type": "application/json"}


def request(
    server: Server, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    """An answer; headers with `_` for `-`, and Host unless it is given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.putrequest(method, path, skip_host="Host" in named)
        if body is not None and "Content-Length" not in named:
            named["Content-Length"] = str(len(body))
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def ask(server: Server, document: Any, verb: str = "simulate") -> tuple[int, Any]:
    body = json.dumps(document).encode()
    status, content = request(server, "POST", f"/api/{verb}", body, Content_Type="application/json")
    return status, json.loads(content)


@pytest.mark.slow
def test_a_document_is_answered_with_the_run(server: Server) -> None:
    status, found = ask(server, LIMIT)
    result = attnlab.simulate(Simulation.from_document(LIMIT)).isel(seed=0)
    classes = classes_from("syn-small")
    wanted = result["attention"].values[:, classes.class_of_entry, classes.tokens]
    assert status == 200
    assert found["steps"] == result["step"].values.tolist()
    (head,) = found["heads"]
    np.testing.assert_allclose(np.reshape(head["attention"], wanted.shape), wanted, atol=1e-6)
    np.testing.assert_allclose(found["loss"], result["loss"], atol=1e-6)


def test_several_heads_are_told_apart(server: Server) -> None:
    model = {"name": "extended", "heads": 2}
    status, found = ask(server, of_page(model=model, init="uniform", motion={"steps": 3}))
    assert status == 200 and len(found["heads"]) == 2
    assert found["heads"][0]["attention"] != found["heads"][1]["attention"]


def test_bad_documents_are_refused_in_words(server: Server) -> None:
    status, found = ask(server, of_page(motion={"steps": -1}))
    assert status == 400 and found["error"].startswith("motion.steps: ")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(
            ({"task": task}, field)
            for classes, field in (
                ("/etc/passwd", "classes"),
                ("../../secret.yaml", "classes"),
                ("syn-small/../x.yaml", "classes"),
                ("zipf:vocab=100000000,classes=2", "classes"),
                ("syn-medium:num_last=9999,next_per_last=9999", "classes"),
                ({"vocabulary": 10**9, "classes": []}, "classes"),
                (["syn-small", "syn-small"], "classes: expected a mapping"),
                (None, "classes: expected a mapping"),
                ("hblt:depth=40", "classes: expected a mapping"),
                ({"vocabulary": 3}, "classes.classes: missing"),
            )
            for task in (classes, {"name": "sequences", "classes": classes})
        ),
        ({"task": {"name": "text", "corpus": "/etc/passwd"}}, "task: a page may ask for sequences"),
        ({"task": {"name": "sequences"}}, "classes: expected a mapping"),
        ({"record": {"evaluate": {"x": "/etc/passwd.yaml"}}}, "record.evaluate: a page may not"),
        ({"motion": "/etc/passwd"}, "motion"),
        ({"gradient": "/etc/passwd"}, "gradient"),
        (
            {
                "task": {"name": "sequences", "classes": "syn-small", "length": 10**9},
                "gradient": "batches",
            },
            "length",
        ),
        (
            {"task": {"name": "sequences", "classes": "syn-small", "training_set": 10**7}},
            "training_set",
        ),
        ({"gradient": {"name": "batches", "size": 10**7}}, "batch_size"),
        ({"exact": False}, "exact: a page may not"),
        ({"motion": {"name": "flow", "solver": "implicit"}}, "solver: a page may not"),
        ({"motion": {"name": "flow", "time": 1e12}}, "time"),
        ({"model": {"name": "embedded", "dim": 10**6}}, "model"),
        ({"model": {"name": "extended", "heads": 10**6}}, "heads"),
        ({"eta_y": [1.0] * 1000}, "eta_y"),
        ({"eta_y": float("nan")}, "eta_y"),
        ({"learning_rate": [1.0] * 1000}, "eta_y"),
        ({"learning_rate": 1e7}, "eta_y"),
        ({"seeds": 1000}, "seeds"),
        ({"motion": {"name": "steps", "steps": 10**9}}, "steps"),
        ({"record": {"every": 1}, "motion": {"name": "steps", "steps": 20_000}}, "records"),
        ({"motion": {"name": "steps", "optimizer": "os.system"}}, "motion.optimizer"),
        ({"engine": {"name": "limit"}}, "engine: was a field of version 0.1"),
        ({"init": json.loads("[" * 70 + "]" * 70)}, "init.*nested too deeply"),
        ({"more": 1}, "more"),
    ],
)
def test_what_a_page_may_ask_for_is_bounded(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}"):
        asked({**LIMIT, **changes})


def test_names_that_a_page_may_ask_for_are_known() -> None:
    assert {*NAMES["presets"]} <= {*presets()}
    assert {*NAMES["model"]} <= {*MODELS}
    assert {*NAMES["motion"]} == {*Motion.kinds()} and {*NAMES["gradient"]} == {*Gradient.kinds()}


def test_it_has_one_page_and_no_file(server: Server) -> None:
    status, page = request(server, "GET", "/")
    assert status == 200 and b'"api": "api"' in page
    assert request(server, "GET", "/index.html") == (200, page)
    for path in (
        "/worker.js",
        "/../server.py",
        "/..%2fserver.py",
        "/%2e%2e/server.py",
        "//etc/passwd",
        "/./index.html",
        "/simulator/../../server.py",
        "/etc/passwd",
        "/simulator/",
        "/index.html/",
        "/..\\server.py",
        "/%00",
        "/api",
        "/api/",
        "/api/../index.html",
    ):
        assert request(server, "GET", path)[0] == 404, path
    assert request(server, "GET", "http://other/index.html")[0] == 403


def test_only_its_own_pages_may_ask(server: Server) -> None:
    port, body = server.server_port, json.dumps(LIMIT).encode()
    post = ("POST", "/api/simulate", body)
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""):
        assert request(server, "GET", "/", Host=host)[0] == 403, host
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{port}.evil.example", "x"):
        assert request(server, *post, **JSON, Origin=origin)[0] == 403, origin
    assert request(server, *post, **JSON, Sec_Fetch_Site="cross-site")[0] == 403
    assert request(server, *post, **JSON, Origin=f"http://localhost:{port}")[0] == 200
    assert request(server, *post, Content_Type="text/plain")[0] == 415


def test_oversized_and_broken_requests_are_refused(server: Server) -> None:
    post = ("POST", "/api/simulate")
    assert request(server, *post, None, **JSON, Content_Length="999999999999")[0] == 413
    assert request(server, *post, None, **JSON, Content_Length="-1")[0] == 411
    assert request(server, *post, None, **JSON, Transfer_Encoding="chunked")[0] == 411
    assert request(server, *post, b"[" * 100_000, **JSON)[0] == 400
    assert request(server, *post, b"\xff\xfe", **JSON)[0] == 400
    assert request(server, "POST", "/api/exec", b"{}", **JSON)[0] == 404
    assert request(server, "DELETE", "/")[0] == 501
    assert request(server, "GET", "/" + "a" * 70_000)[0] == 414


def messages(count: int) -> list[bytes]:
    """Documents that nobody would send: cut short, of wrong types, huge numbers, odd names."""
    choose = random.Random(7)
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        1e308,
        float("inf"),
        float("nan"),
        "",
        "x" * 1000,
        "\0",
        "<script>",
        "../../etc/passwd",
        [],
        {},
        [[]],
        {"name": "batches"},
        {"name": None},
        ["a"] * 50,
        {"a": {"b": {"c": 1}}},
        "\u202e",
        2**70,
    ]
    made = []
    for _ in range(count):
        document = json.loads(json.dumps(LIMIT))
        for _ in range(choose.randint(1, 3)):
            document[choose.choice([*LIMIT, "model", "zzz"])] = choose.choice(odd)
        text = json.dumps(document).encode()
        made.append(text[: choose.randrange(len(text))] if choose.random() < 0.2 else text)
    return made


@pytest.mark.slow
def test_hostile_messages_leave_it_as_it_was(server: Server) -> None:
    wait_until_free(server)
    assert ask(server, LIMIT)[0] == 200
    processes = [worker.process for worker in server.workers.all]
    statuses = {request(server, "POST", "/api/simulate", m, **JSON)[0] for m in messages(300)}
    assert statuses <= {200, 400, 408}, statuses
    assert [worker.process for worker in server.workers.all] == processes
    assert ask(server, LIMIT)[0] == 200


def drip(server: Server) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_port))
    connection.sendall(b"POST /api/simulate HTTP/1.1\r\nHost: ")
    return connection


@pytest.mark.slow
def test_half_a_request_holds_up_nobody(server: Server) -> None:
    hanging = [drip(server) for _ in range(20)]
    assert request(server, "GET", "/")[0] == 200
    for connection in hanging:
        connection.close()


def test_a_request_that_drips_is_ended(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.5)
    begun, connection = time.monotonic(), drip(server)
    with pytest.raises(OSError):
        while time.monotonic() - begun < 20:
            time.sleep(0.05)  # always within the time of one byte
            connection.sendall(b"x")
    assert time.monotonic() - begun < 10
    connection.close()


@pytest.mark.slow
def test_many_that_drip_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 4)
    with serving(port=0) as server:
        hanging = [drip(server) for _ in range(16)]
        for _ in range(3):
            begun = time.monotonic()
            assert request(server, "GET", "/")[0] == 200
            assert time.monotonic() - begun < 5
            for connection in hanging:
                with suppress(OSError):
                    connection.sendall(b"x")
        for connection in hanging:
            connection.close()


# continuous time that takes for ever in small steps: it is heard to stop between two calls
ENDLESS = {
    **LIMIT,
    "motion": {"name": "flow", "time": 1e9, "rtol": 1e-6, "most_steps": 100_000},
    "eta_y": 1e5,
    "eta_z": 1e-5,
    "dtype": "float64",
}


def leave_in_the_middle(server: Server, document: Any) -> None:
    """Ask for a run and close the connection once it computes."""
    body = json.dumps(document).encode()
    connection = socket.create_connection(("127.0.0.1", server.server_port))
    head = (
        f"POST /api/simulate HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    deadline = time.monotonic() + 300
    while server.workers.free.qsize() == len(server.workers.all):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    connection.close()


def wait_until_free(server: Server) -> None:
    deadline = time.monotonic() + 300
    while server.workers.free.qsize() < len(server.workers.all):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_ends_when_its_page_goes() -> None:
    with serving(port=0, workers=Workers(1, seconds=300)) as server:
        for _ in range(2):
            leave_in_the_middle(server, ENDLESS)
            wait_until_free(server)
        assert ask(server, LIMIT)[0] == 200


@pytest.mark.slow
def test_a_run_that_takes_too_long_is_ended() -> None:
    with serving(port=0, workers=Workers(1, seconds=0.5)) as server:
        status, found = ask(server, ENDLESS)
        assert status == 408 and "seconds" in found["error"]


@pytest.mark.slow
def test_a_process_that_dies_is_started_again(server: Server) -> None:
    wait_until_free(server)
    assert ask(server, LIMIT)[0] == 200
    for worker in server.workers.all:
        if worker.process is not None:
            worker.process.kill()
            worker.process.join()
    assert ask(server, LIMIT)[0] == 200


def test_a_bug_of_ours_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(port=0) as server:
        monkeypatch.setattr(server.workers, "ask", lambda *_: 1 / 0)
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, LIMIT)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_thread_that_cannot_start_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadingHTTPServer, "process_request", fail)
    with Server(port=0) as server:
        for _ in range(MOST_CONNECTIONS + 1):
            with pytest.raises(RuntimeError, match="can't start"):
                server.process_request(None, None)


def test_a_port_that_is_taken_is_refused_in_words(server: Server) -> None:
    with pytest.raises(InputError, match="^port: cannot listen on 127.0.0.1"):
        Server(port=server.server_port)


@pytest.mark.slow
def test_the_command_serves_what_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    write_classes(classes_from("family:common=2,distinct=2"), path)
    entry = [sys.executable, "-c", "from attnlab.cli import main; main()"]
    command = [*entry, "play", str(path), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        connection.request("GET", "/")
        page = connection.getresponse().read().decode()
        begin = json.loads(page.partition(BEGIN)[2].partition("<")[0])
        assert len(begin["start"]["a"]["task"]["classes"]["classes"][0]["probs"]) == 4
    finally:
        process.terminate()
        assert process.wait(300) in (130, -15)


def test_a_page_opens_on_a_simulation(tmp_path: Path) -> None:
    run = as_simulation("syn-small", eta_y=3.0, optimizer="adam", seeds=[4], every=10)
    state = opening(run)
    assert Simulation.from_document(state["a"]) == run
    assert Simulation.from_document(opening(run, eta_y=4.0)["a"]).eta_y == 4.0
    assert Simulation.from_document(opening("syn-small", time=50.0)["a"]).last == 50.0
    path = tmp_path / "run.json"
    path.write_text(json.dumps(state["a"]))
    assert opening(str(path)) == {**state, "a": {**state["a"]}}
    with pytest.raises(InputError, match="one run"):
        opening(Simulation("syn-small", seeds=3))

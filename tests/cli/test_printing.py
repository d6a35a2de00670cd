"""Printing: no name takes hold of the terminal, and no table is cut."""

import io
import re

import pytest
import xarray as xr

import attnlab
from attnlab.auditing.document import in_markdown
from attnlab.cli import printing
from attnlab.files.errors import visible
from attnlab.files.markdown import table_of

# ESC [ 31 m turns red, C1's CSI does too, U+202E turns the letters after it around
HOSTILE = "\x1b[31mred", "\x9b31mred", "\u202eder", "bell\x07", "two\nlines", "</b>", "a|$b$*<br>"
OBEYED = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

WORDS = """
vocabulary: ["\\e[31mthe", "\\x9ba", "\\u202Eb", was, "two\\nlines", "bell\\a"]
classes:
  - {query: was, next: "two\\nlines", probs: {"\\e[31mthe": 0.5, "\\x9ba": 0.5}}
  - {query: was, next: "bell\\a", probs: {"\\e[31mthe": 0.5, "\\u202Eb": 0.5}}
"""
QUICK = ["--length", "16", "--batch-size", "8", "--steps", "12"]
TRIAL = {
    "classes": "\x1b.yaml",
    "eta_y": 1.0,
    "eta_z": 1.0,
    "time": 9.0,
    "silent": {"sgd": "\x1b[2J"},
    "assumptions": [
        {
            "asked_by": "Theorem 1",
            "says": "some long name of it",
            "read_as": "bound (<)",
            "value": 1.0,
            "sign": "<",
            "needed": 0.5,
            "holds": False,
        }
    ],
    "fates": [
        {
            "query": name,
            "token": name,
            "role": "distinct",
            "claimed": "gains",
            "predicted": {"corrected": -0.13571},
            "simulated": 0.14221,
            "as_claimed": False,
        }
        for name in HOSTILE
    ],
    "errors": {
        "at": ["end"],
        "time": [9.0],
        "costs": ["Without \x1b[2J the error goes."],
        "theories": [
            {"theory": "corrected", "leans_on": "", "z_error": [1.0], "attention_error": [0.1]}
        ],
    },
    "transition": [1.0, 2.0],
    "snap": [
        {
            "sequence_class": 0,
            "next": name,
            "predicted": {"corrected": 1.0},
            "simulated": None,
            "at_least": {"corrected": 1.25},
        }
        for name in HOSTILE
    ],
    "commentary": {"own": {"sentences": [f'Not so: "{name}" should gain.' for name in HOSTILE]}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_terminal_would_obey_is_written_out(name):
    assert visible(name).isprintable()
    assert visible("naïve Ελλάδα 日本 ‏שלום") == "naïve Ελλάδα 日本 ‏שלום"


@pytest.mark.slow
def test_names_do_not_reach_the_terminal_raw(tmp_path, call):
    (tmp_path / "\x1b[2J.yaml").write_text(WORDS)
    code, out, err = call("simulate", "\x1b[2J.yaml", *QUICK, "--out", "\x1b.nc", cwd=tmp_path)
    assert code == 0, err
    assert not OBEYED.search(out + err)
    for shown in (r"\x1b[2J.yaml: T = 16", r"two\nlines", r"bell\x07", r"wrote \x1b.nc"):
        assert shown in out
    code, out, err = call("cite", "\x1b.nc", cwd=tmp_path)
    assert code == 0, err
    assert not OBEYED.search(out + err)


def test_a_file_name_that_is_no_text_can_be_printed(tmp_path, call):
    (tmp_path / "\udcff.yaml").write_text(WORDS)
    code, out, err = call("simulate", "\udcff.yaml", *QUICK, cwd=tmp_path)
    assert code == 0, err
    assert out.startswith(r"\udcff.yaml: T = 16")


def test_messages_do_not_reach_the_terminal_raw(tmp_path, call):
    (tmp_path / "c.yaml").write_text(WORDS.replace('"\\x9ba": 0.5', '"\\x9ba": "\\e[2J", "\\e": 1'))
    code, _, err = call("simulate", "c.yaml", cwd=tmp_path)
    assert code == 2
    assert err.startswith("attnlab: c.yaml: classes[0].probs.")
    assert not OBEYED.search(err)


def test_a_result_from_elsewhere_cannot_leave_the_comments(tmp_path, call):
    spec = '{"classes": "x\\n@misc{injected}\\u001b[2J"}'
    attrs = {"spec": spec, "versions": "{}", "made_at": "\x1b[2J", "made_by": "attnlab"}
    attnlab.save(xr.Dataset(attrs=attrs), tmp_path / "run.nc")
    code, out, _ = call("cite", "run.nc", cwd=tmp_path)
    assert code == 0
    assert not OBEYED.search(out)
    assert all(line.startswith("%") for line in out.splitlines() if "injected" in line)


@pytest.mark.parametrize("width", [40, 80])
def test_an_audit_of_hostile_names_is_whole_in_a_narrow_terminal(width, monkeypatch):
    printed = narrow(monkeypatch, width, lambda: printing.show(in_markdown({"run": TRIAL})))
    assert not OBEYED.search(printed)
    assert "…" not in printed
    table = printed.splitlines()[1:]  # what stands above it is for the terminal to fold
    assert max(map(len, table)) <= width
    for whole in (
        r"\x1b[31mred",
        r"\x9b31mred",
        "</b>",
        "a|$b$*<br>",
        "-0.1357",
        "0.1422",
        ">= 1.25",
        "training",
    ):
        assert whole in printed


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_a_table_is_never_cut(width, monkeypatch):
    columns = ("for example", "words", "entropy of attention")
    cells = "syn-medium:num_last=3", " ".join(["one", "two", "three"] * 5), (2.899, 2.87)
    table = table_of([dict(zip(columns, cells, strict=True))] * 2)
    printed = narrow(monkeypatch, width, lambda: printing.show(table))
    assert max(map(len, printed.splitlines())) <= width
    for whole in (*columns, "syn-medium:num_last=3", "2.899 → 2.87"):
        assert whole in " ".join(printed.split())
    assert printed.count("three") == 10


def narrow(monkeypatch, width, show):
    """Return the output of `show` on a terminal of that width, without colours."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("rich.console.Console._detect_color_system", lambda _: None)
    show()
    return terminal.getvalue()

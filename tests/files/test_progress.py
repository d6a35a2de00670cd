"""What is said to those who wait: after a while, and then again and again."""

import io
import threading

import pytest

from attnlab.cli import audit
from attnlab.files import progress
from attnlab.files.progress import reporting

LONG = 60.0  # seconds, which no machine should need


class Stderr(io.StringIO):
    """A stderr of which one can wait for words."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal, self.news = terminal, threading.Condition()

    def isatty(self):
        return self.terminal

    def write(self, text):
        with self.news:
            self.news.notify_all()
            return super().write(text)

    def says(self, words):
        with self.news:
            return self.news.wait_for(lambda: words in self.getvalue(), LONG)


@pytest.fixture
def stderr(monkeypatch):
    """Puts such a stderr in place, where patience is short."""

    def put(*, terminal=False):
        made = Stderr(terminal)
        monkeypatch.setattr("sys.stderr", made)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(progress, "PATIENCE", 0.001)
        monkeypatch.setattr(progress, "INTERVAL", 0.05)
        return made

    return put


def test_a_pipe_gets_a_line_before_there_is_progress_and_then_the_percentage(stderr):
    heard = stderr()
    with reporting("auto", 100.0, "syn-small") as report:
        assert heard.says("syn-small: compiling\n")
        report(30.0)
        assert heard.says("syn-small: 30 %\n")  # of one report there is no pace
        report(20.0, "loss 1.5")
        assert heard.says("syn-small: loss 1.5: 50 %, ")
        assert heard.says(" s left\n")


def test_quick_or_quiet_work_prints_nothing(stderr, monkeypatch):
    heard = stderr()
    with reporting(False, 1.0, "a"), progress.waiting("b", quiet=True):
        threading.Event().wait(0.05)
    monkeypatch.setattr(progress, "PATIENCE", LONG)
    with reporting("auto", 1.0, "c") as report, progress.waiting("d"):
        report(1.0)
    assert heard.getvalue() == ""


def test_a_terminal_has_a_bar_before_there_is_progress(stderr):
    heard = stderr(terminal=True)
    with reporting("auto", 100.0, "[b]\x1b") as report:
        assert heard.says(r"[b]\x1b: compiling")
        report(30.0)
        assert heard.says("30 %")


def test_a_terminal_has_a_status_line_that_is_cleared(stderr):
    heard = stderr(terminal=True)
    with progress.waiting("reading a\x1b[2J book"):
        assert heard.says(r"attnlab: reading a\x1b[2J book (")
    assert heard.getvalue().endswith(progress.CLEARED)
    assert "\n" not in heard.getvalue()


def test_a_pipe_gets_a_status_line(stderr):
    heard = stderr()
    with progress.waiting("loading JAX"):
        assert heard.says("attnlab: loading JAX (0 s)\n")


def test_a_pipe_gets_the_claims_of_an_audit(stderr):
    heard = stderr()
    with audit._progress(3, quiet=False) as tell:
        tell("lemma-1")
        tell("lemma-2")
        assert heard.says("audit: lemma-2: 33 %\n")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (90, "90 s"), (600, "10 min"), (9000, "2.5 h"), (1e300, "years")],
)
def test_a_time_in_words(seconds, words):
    assert progress.in_words(seconds) == words

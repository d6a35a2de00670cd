"""Parts that are made two at a time."""

import threading
import time

import pytest

from attnlab.experiments import Part
from attnlab.report.make import Reproducer


def made(name):
    return Part(name, "", "", "", "", "", "", "", {}, {}, {}, {}, 0.0, "", {})


def test_two_parts_at_a_time_report_progress_by_name(tmp_path):
    both = threading.Barrier(2, timeout=60)

    def make(name, progress):
        progress(int(name) / 10)
        if name in "14":
            both.wait()  # for each other
        return made(name)

    reports, lines = [], []
    parts = {"report": lambda done, note: reports.append((done, note)), "tell": lines.append}
    reproducer = Reproducer("12345", make, out=tmp_path / "new", **parts)
    reproducer.side_by_side("4", "123")
    assert [one.name for one in reproducer.in_order] == ["1", "2", "3", "4"]
    reproducer.side_by_side("5")
    assert [one.name for one in reproducer.in_order] == list("12345")
    assert sum(done for done, _ in reports) == pytest.approx(5)
    assert {f"{name} {name}0 %" for name in "12345"} <= {
        part for _, note in reports for part in note.split(", ")
    }
    assert sorted(line[0] for line in lines) == list("12345")
    assert lines[-1].startswith("5: ") and lines[-1].endswith(" s, 0 left")


@pytest.mark.parametrize(("failing", "other"), ["13", "31"], ids=["there", "here"])
def test_when_one_part_fails_the_other_thread_stops(tmp_path, failing, other):
    begun = {name: threading.Event() for name in "1234"}

    def make(name, progress):
        begun[name].set()
        if name == failing:
            assert begun[other].wait(60)
            raise RuntimeError(f"{name} failed")
        while not reproducer.failed:
            time.sleep(0.01)
        return made(name)

    reproducer = Reproducer("1234", make, out=tmp_path, report=lambda done, note: None)
    with pytest.raises(RuntimeError, match=f"{failing} failed"):
        reproducer.side_by_side("34", "12")
    for thread in threading.enumerate():
        if thread.name == "attnlab side_by_side":
            thread.join(60)
    assert [name for name in begun if begun[name].is_set()] == ["1", "3"]

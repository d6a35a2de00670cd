"""Parts that are made two at a time."""

import threading
import time

import pytest

from attnlab.experiments import Made
from attnlab.report.make import Making


def made(name):
    return Made(name, "", "", "", "", "", "", "", {}, {}, {}, {}, 0.0, "", {})


class Watch:
    def __init__(self):
        self.left, self.fractions, self.ended = {}, {}, []

    def begin(self, name, left):
        self.left[name] = left

    def progress(self, name, fraction):
        self.fractions[name] = fraction

    def end(self, name, seconds, part):
        self.ended.append(name)


def test_two_at_a_time_and_told_apart(tmp_path):
    both = threading.Barrier(2, timeout=60)

    def make(name, progress):
        progress(int(name) / 10)
        if name in "14":
            both.wait()  # for each other
        return made(name)

    watch = Watch()
    making = Making("12345", make, out=tmp_path / "new", watch=watch)
    making.side_by_side("4", "123")
    assert [one.name for one in making.in_order] == ["1", "2", "3", "4"]
    making.side_by_side("5")
    assert [one.name for one in making.in_order] == list("12345")
    assert watch.left["5"] == ()
    assert set(watch.left["2"]) <= set("345")
    assert watch.fractions == {name: int(name) / 10 for name in "12345"}
    assert sorted(watch.ended) == list("12345")


@pytest.mark.parametrize(("failing", "other"), ["13", "31"], ids=["beside", "here"])
def test_where_one_fails_the_other_goes_no_further(tmp_path, failing, other):
    begun = {name: threading.Event() for name in "1234"}

    def make(name, progress):
        begun[name].set()
        if name == failing:
            assert begun[other].wait(60)
            raise RuntimeError(f"{name} failed")
        while not making.failed:
            time.sleep(0.01)
        return made(name)

    making = Making("1234", make, out=tmp_path, watch=None)
    with pytest.raises(RuntimeError, match=f"{failing} failed"):
        making.side_by_side("34", "12")
    for thread in threading.enumerate():
        if thread.name == "attnlab beside":
            thread.join(60)
    assert [name for name in begun if begun[name].is_set()] == ["1", "3"]

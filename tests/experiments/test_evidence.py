"""Numbers on file: written, read again, and refused where they are not of the run."""

from dataclasses import replace

import pytest

from attnlab import Simulation, Steps
from attnlab.experiments import Evidence, published
from attnlab.files.errors import InputError


def run():
    return Simulation("syn-small", motion=Steps(2), seeds=2)


def evidence(tmp_path, of=run):
    (tmp_path / "evidence").mkdir(exist_ok=True)
    return Evidence(str(tmp_path / "own.py"), {"own": of}, lambda _, result: result[["loss"]])


@pytest.mark.slow
def test_numbers_are_read_as_they_were_written(tmp_path):
    own = evidence(tmp_path)
    own.write()
    found = own.read("own")
    assert found.sizes == {"seed": 2, "step": 3} and found["loss"].dtype == float


def test_numbers_of_another_run_or_changed_by_hand_are_refused(tmp_path):
    own = evidence(tmp_path)
    own.write("own")
    other = evidence(tmp_path, lambda: replace(run(), eta_y=2.0))
    with pytest.raises(InputError, match="not the numbers of this run"):
        other.read("own")
    text = own.file("own").read_text()
    own.file("own").write_text(text.replace("\n0,", "\n1,", 1))
    with pytest.raises(InputError, match="not the numbers of this run"):
        own.read("own")


def test_published_rows_have_numbers_and_words(tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published/of.csv").write_text("# read off a figure\nnorm,rank\nnuclear,2.5\n")
    assert published(str(tmp_path / "figures/of.py"), "of") == [{"norm": "nuclear", "rank": 2.5}]

"""Output folders: what is somebody else's stays, links are refused, and no leftover stays."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.files import atomic
from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.folders import LIST, claim, make_folder
from attnlab.tasks.classes import classes_from, write_classes


@pytest.fixture(autouse=True)
def as_a_new_process(monkeypatch):
    monkeypatch.setattr(atomic, "_swept", set())


@pytest.mark.parametrize("planted", ["table.csv", "groups", "groups/deep"])
def test_a_link_inside_an_output_folder_is_refused(tmp_path, planted):
    out, victim = tmp_path / "out", tmp_path / "victim"
    (out / "groups" / "deep").mkdir(parents=True)
    if planted == "table.csv":
        victim.write_text("mine")
    else:
        (out / "groups" / "deep").rmdir()
        victim.mkdir()
        (victim / "a.nc").write_text("mine")
        if planted == "groups":
            (out / "groups").rmdir()
    (out / planted).symlink_to(victim)
    path = out / planted if planted == "table.csv" else out / planted / "a.nc"
    words = rf"{re.escape(str(out / planted))}: is a link.*; remove the link, or give another"
    with pytest.raises(InputError, match=words), atomic_path(path, inside=out) as temporary:
        temporary.write_text("attnlab's")
    if planted != "table.csv":
        with pytest.raises(InputError, match=words):
            make_folder(path.parent, inside=out)
    kept = victim if planted == "table.csv" else victim / "a.nc"
    assert kept.read_text() == "mine"


def test_the_folder_that_the_user_named_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    out = tmp_path / "link"
    out.symlink_to("real")
    claim(out, ["table.csv"])
    with atomic_path(out / "table.csv", inside=out) as temporary:
        temporary.write_text("new")
    assert (tmp_path / "real" / "table.csv").read_text() == "new"


def test_files_of_others_are_not_replaced(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(InputError, match=r"table\.csv: is there, .*; give another folder"):
        claim(tmp_path, ["plan.json", "table.csv"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "table.csv"]
    (tmp_path / "table.csv").unlink()
    claim(tmp_path, ["plan.json", "table.csv"])
    (tmp_path / "table.csv").write_text("attnlab's")
    claim(tmp_path, ["plan.json", "table.csv"])  # the same command again
    before = (tmp_path / LIST).read_text()
    assert before.split("\n")[1:] == ["plan.json", "table.csv", ""]
    with pytest.raises(InputError, match=r"notes\.txt: is there"):
        claim(tmp_path, ["notes.txt", "more"])
    claim(tmp_path, ["more"])
    assert (tmp_path / LIST).read_text() == f"{before}\nmore\n"


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "text"])
def test_a_list_that_is_no_file_is_refused(tmp_path, kind):
    place, victim = tmp_path / "out" / LIST, tmp_path / "victim"
    place.parent.mkdir()
    victim.write_text("mine")
    if kind == "folder":
        place.mkdir()
    elif kind == "text":
        place.write_text("mine")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(victim if kind == "link" else tmp_path / "absent")
    with pytest.raises(InputError, match=LIST):
        claim(place.parent, ["table.csv"])
    assert victim.read_text() == "mine" and not (tmp_path / "absent").exists()


def test_an_output_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is not a folder"):
        claim(tmp_path / "file", ["table.csv"])


def test_a_disk_that_becomes_read_only_names_the_file_and_the_leftover_is_removed_later(
    tmp_path, monkeypatch
):
    target = tmp_path / "table.csv"
    target.write_text("old")
    unlink = Path.unlink

    def refused(self, missing_ok=False):
        raise OSError(30, "Read-only file system", os.fspath(self))

    def replaced(source, goal):
        raise OSError(30, "Read-only file system", os.fspath(source))

    monkeypatch.setattr(Path, "unlink", refused)
    monkeypatch.setattr(os, "replace", replaced)
    with pytest.raises(OSError) as found, atomic_path(target) as temporary:
        temporary.write_text("new")
    assert (found.value.errno, found.value.filename) == (30, str(target))
    monkeypatch.undo()
    assert temporary.exists() and Path.unlink is unlink
    monkeypatch.setattr(atomic, "_swept", {tmp_path} & atomic._swept)  # in the same process
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert os.listdir(tmp_path) == ["table.csv"]


KILLED = """
import os, signal, sys
from attnlab.files.atomic import atomic_path
with atomic_path(sys.argv[1]) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_leftover_of_a_killed_writer_is_removed_by_the_next_write(tmp_path):
    target = tmp_path / "table.csv"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, target], env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 1
    (tmp_path / ".attnlab-notes").write_text("mine")  # not such a name
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert sorted(os.listdir(tmp_path)) == [".attnlab-notes", "table.csv"]


def test_what_another_writer_has_not_finished_stays(tmp_path):
    busy = tmp_path / f".attnlab-{'0' * 16}.csv"
    with open(busy, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with atomic_path(tmp_path / "table.csv") as temporary:
            temporary.write_text("new")
        assert busy.exists()


def test_classes_are_written_through_the_path_that_was_named(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_classes(classes_from("syn-small"), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert "classes" in (tmp_path / "real.json").read_text()

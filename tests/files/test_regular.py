"""Regular files are read; what else there may be at a path is refused, at once and in one line."""

import os
import socket
from pathlib import Path

import pytest

from attnlab.files.netcdf import load
from attnlab.files.recipe import read_recipe
from attnlab.files.regular import NotAFile, open_regular, read_regular
from attnlab.sweeping import SweepRecipe
from attnlab.tasks.classes import classes_from, read_classes
from attnlab.tasks.text.sources import read_source


@pytest.fixture
def places(tmp_path, monkeypatch):
    """What may be at a path, by the words for it."""
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    os.mkfifo("pipe.yaml")
    Path("folder.yaml").mkdir()
    Path("loop.yaml").symlink_to("loop.yaml")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.yaml")
    Path("zero.yaml").symlink_to("/dev/zero")
    return {
        "pipe.yaml": "not a file but a named pipe",
        "folder.yaml": "not a file but a folder",
        "socket.yaml": "not a file but a socket",
        "zero.yaml": "not a file but a device",
        "loop.yaml": "Too many levels of symbolic links",
        "nothing.yaml": "no such file",
        "nu\0l.yaml": "no file can have such a name",
        "half\ud800.yaml": "no file can have such a name",
    }


def test_only_regular_files_are_read(places):
    for name, words in places.items():
        with pytest.raises((ValueError, OSError), match=words):
            open_regular(name)
        for read in (read_classes, classes_from, lambda path: read_recipe(path, SweepRecipe), load):
            with pytest.raises((ValueError, OSError), match=words) as caught:
                read(name)
            assert "Errno" not in str(caught.value)
    assert issubclass(NotAFile, ValueError)


def test_a_corpus_is_made_of_regular_files(places):
    for name in ("pipe.yaml", "zero.yaml", "socket.yaml"):
        with pytest.raises(NotAFile, match=places[name]):
            read_source(name)
        with pytest.raises((NotAFile, FileNotFoundError), match=name):
            read_source("builtin", validation=name)
    for name in ("loop.yaml", "nothing.yaml", "nu\0l.yaml"):
        with pytest.raises(FileNotFoundError, match="no such corpus"):
            read_source(name)
    os.mkfifo("folder.yaml/some.txt")
    with pytest.raises(NotAFile, match="some.txt: not a file but a named pipe"):
        read_source("folder.yaml")


def test_a_link_to_a_file_is_followed_and_a_large_file_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", most=7, advice="cut it") == b"content"
    with pytest.raises(ValueError, match="link: larger than 6 B; cut it"):
        read_regular(tmp_path / "link", most=6, advice="cut it")
    os.truncate(tmp_path / "file", 2**43)  # of which nothing is on the disk, nor read
    with pytest.raises(ValueError, match="file: larger than 1 GB; cut it"):
        read_regular(tmp_path / "file", most=10**9, advice="cut it")

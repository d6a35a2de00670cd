"""Output folders: attnlab replaces only what it wrote there, and follows no link inside one.

A person who names a folder names one place, and a link at that path is followed. A link inside the
folder can lead anywhere, and a file inside it can belong to somebody else. So each output folder
has a list of attnlab's files, attnlab-files.txt, which is written first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from attnlab.files.errors import InputError
from attnlab.files.regular import open_regular

LIST = "attnlab-files.txt"
MARK = "# attnlab"
HEADING = f"{MARK} writes these files and folders here. It replaces nothing else."


def refuse_links(path: str | os.PathLike[str], *, inside: str | os.PathLike[str]) -> Path:
    """Return `path`, unless it or a folder between it and `inside` is a link.

    Parameters
    ----------
    path : str or path
        A place in an output folder.
    inside : str or path
        The output folder, as the user named it. It may be a link itself.
    """
    path, reached = Path(path), Path(inside)
    for name in path.relative_to(reached).parts:
        reached /= name
        if reached.is_symlink():
            raise InputError(
                f"{reached}: is a link, and attnlab does not write through links inside an output "
                "folder; remove the link, or give another folder"
            )
    return path


def make_folder(path: str | os.PathLike[str], *, inside: str | os.PathLike[str]) -> Path:
    """Make a folder in an output folder, where it is not there yet; links are refused."""
    path = refuse_links(path, inside=inside)
    path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_foreign(folder: str | os.PathLike[str], names: Sequence[str]) -> list[str]:
    """Return the names that are not on an output folder's list yet; writes nothing.

    Raises InputError if one of the names is a link, or exists and is not on the list: another
    program made it.

    Parameters
    ----------
    folder : str or path
        The folder, as the user named it.
    names : sequence of str
        Files and folders directly in it.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out: {folder} is not a folder; give another path")
    before = listed(folder)
    new = [name for name in names if name not in before]
    for name in (*names, LIST):
        refuse_links(folder / name, inside=folder)
    for name in new:
        if (folder / name).exists():
            raise InputError(
                f"{folder / name}: is there, and is not one of the files of attnlab (see "
                f"{folder / LIST}); give another folder, or move it away. If an older version of "
                f'attnlab wrote it, give that list the lines "{MARK}" and "{name}"'
            )
    return new


def claim(folder: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Make an output folder, and list what attnlab is going to write there.

    The arguments and errors are those of `refuse_foreign`.
    """
    folder = Path(folder)
    new = refuse_foreign(folder, names)
    if not new:
        return
    folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(folder / LIST, flags, 0o666)
    try:
        # in one piece, so that drivers that begin together do not write into each other's lines
        os.write(descriptor, "\n".join(("" if listed(folder) else HEADING, *new, "")).encode())
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, str(folder / LIST)) from problem
    finally:
        os.close(descriptor)


def listed(folder: Path) -> list[str]:
    """Return the names on an output folder's list; none where it has no list."""
    try:
        with open_regular(folder / LIST) as file:
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    if not (
        text.startswith(MARK) or HEADING.startswith(text)
    ):  # the latter on a disk that was full
        raise InputError(
            f"{folder / LIST}: is not a list of attnlab's files; give another folder, or move it "
            "away"
        )
    return [line for line in text.splitlines() if line and not line.startswith("#")]

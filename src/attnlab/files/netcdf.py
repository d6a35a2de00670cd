"""Results as files: netCDF, written atomically, with a checksum that is verified when read.

A file is an ordinary netCDF-4 (HDF5) file, which any netCDF tool opens, followed by a seal: 80
bytes of text with the SHA-256 of all bytes before them (HDF5 ignores what follows its own end).
The bytes are sealed rather than the values because HDF5 must not see a damaged file at all: one
flipped bit in its metadata can make it loop for ever. By hand:

    head -c -80 FILE | sha256sum; tail -c 80 FILE

HDF5 can also refer to what is elsewhere: links, arrays made of other files' arrays, values in other
files. A seal says nothing about those, so that a file with any of them is refused.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import xarray as xr

from attnlab.files.atomic import atomic_path
from attnlab.files.errors import InputError
from attnlab.files.memory import machine_memory, size_words
from attnlab.files.regular import open_regular

if TYPE_CHECKING:
    import h5py

ENGINE: Final = "h5netcdf"
SEAL = b"attnlab sha256 %b\n"
SEAL_SIZE = len(SEAL % (b"0" * 64))
HDF5 = b"\x89HDF\r\n\x1a\n"  # how such a file begins


class DamagedFile(InputError):
    """A file that is not as it was saved: truncated, edited, or of another origin."""

    def __init__(
        self, path: str | os.PathLike[str], reason: str, remedy: str = "delete it and make it again"
    ) -> None:
        super().__init__(f"{os.fspath(path)}: damaged ({reason}); {remedy}")


class NotAResult(DamagedFile):
    """A file that was never a result of attnlab."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        ValueError.__init__(
            self, f"{os.fspath(path)}: not a result of attnlab; give a .nc file that it wrote"
        )


def save(
    dataset: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    inside: str | os.PathLike[str] | None = None,
) -> None:
    """Write a result to a netCDF file that :func:`load` gives back exactly.

    Values may be booleans, integers, float32, float64 or strings; attributes strings and numbers
    (put anything richer into a JSON string). The file is complete or not there: see
    :func:`~attnlab.files.atomic.atomic_path`. Before it takes its place it is read back and
    compared, so that what netCDF cannot hold is an error now and not a surprise later.

    Parameters
    ----------
    dataset : xarray.Dataset
        A result.
    path : str or path
        The file, NAME.nc.
    inside : str or path, optional
        A folder that holds the file. Links inside it are refused; without it, a link at `path` is
        followed.
    """
    dataset = _storable(dataset)
    # In memory first: HDF5 does not survive a disk that fills up while it writes.
    content = io.BytesIO()
    dataset.to_netcdf(content, engine=ENGINE, encoding=_encoding(dataset))
    with atomic_path(path, inside=inside) as temporary:
        write_with_seal(temporary, content)
        _refuse_changes(path, dataset, load(temporary))


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a result into memory, after verifying that it is what was saved.

    Raises FileNotFoundError when there is no such file, and :class:`DamagedFile` when it was
    truncated or changed since it was saved, or refers to anything outside itself.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    xarray.Dataset
        The result.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import attnlab
    >>> path = Path(tempfile.mkdtemp()) / "run.nc"
    >>> run = attnlab.simulate("syn-small", gradient="population", progress=False)
    >>> attnlab.save(run, path)
    >>> attnlab.load(path).identical(run)
    True
    """
    with open_regular(path) as file:
        verify_open(file, path)
        with hdf5(file, path) as content:
            size = sum(held(content, name, path).nbytes for name in content)
        if size > machine_memory():
            raise InputError(
                f"{os.fspath(path)}: would need {size_words(size)} of memory; this machine has "
                f"{size_words(machine_memory())}"
            )
        # Result variables are numbers and names: `time` is flow time, never a date.
        try:
            dataset = xr.load_dataset(file, engine=ENGINE, decode_times=False).drop_encoding()
        except Exception as problem:  # HDF5 that is not netCDF fails in many ways
            raise DamagedFile(
                path, f"sealed, but not a dataset of attnlab ({type(problem).__name__})"
            ) from problem
    dataset.attrs = _plain(dataset.attrs)
    for variable in dataset.variables.values():
        variable.attrs = _plain(variable.attrs)
    return dataset


def write_with_seal(path: str | os.PathLike[str], content: io.BytesIO) -> None:
    """Write bytes and the seal by which `verify` knows them."""
    with open(path, "wb") as file:
        file.write(content.getbuffer())
        file.write(SEAL % hashlib.sha256(content.getbuffer()).hexdigest().encode())


def verify(path: str | os.PathLike[str]) -> None:
    """Raise :class:`DamagedFile` unless the file is, byte for byte, what was saved."""
    with open_regular(path) as file:
        verify_open(file, path)


def verify_open(file: BinaryIO, path: str | os.PathLike[str]) -> None:
    """Verify an open file, from any position."""
    size = max(0, file.seek(0, os.SEEK_END) - SEAL_SIZE)
    file.seek(0)
    begin = file.read(len(HDF5))
    file.seek(size)
    found = file.read()
    prefix = SEAL.partition(b"%b")[0]
    if not found.startswith(prefix) or len(found) != SEAL_SIZE:
        if not HDF5.startswith(begin):  # neither whole nor cut off
            raise NotAResult(path)
        raise DamagedFile(
            path,
            "no checksum at its end: cut off, edited, or not from attnlab",
            "if attnlab wrote it, make it again",
        )
    if found != _seal(file, size):
        raise DamagedFile(path, "its content does not match its checksum")


@contextmanager
def hdf5(file: BinaryIO, path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Open the content of a verified file; the netCDF libraries take a hundred times as long."""
    import h5py

    try:
        content = h5py.File(file, "r")
    except OSError as problem:
        raise DamagedFile(path, "sealed, but no netCDF file") from problem
    with content:
        yield content


def held(content: h5py.File, name: str, path: str | os.PathLike[str]) -> h5py.Dataset:
    """Return an array of a file; refuse one that is stored elsewhere."""
    import h5py

    own = "/" not in name and isinstance(content.get(name, getlink=True), h5py.HardLink)
    array = content[name] if own else None
    if not isinstance(array, h5py.Dataset) or array.external or array.is_virtual:
        raise DamagedFile(path, f"{name!r} is not an array of this file; not from attnlab")
    return array


def _seal(file: BinaryIO, size: int) -> bytes:
    """Return the seal of the first `size` bytes of a file."""
    sha = hashlib.sha256()
    file.seek(0)
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        sha.update(block)
        size -= len(block)
    return SEAL % sha.hexdigest().encode()


def _storable(dataset: xr.Dataset) -> xr.Dataset:
    """Return a copy that netCDF holds exactly; refuse variables that it cannot hold."""
    dataset = dataset.as_numpy().copy().drop_encoding()
    dataset.attrs = _plain(dataset.attrs)
    for name, of in dataset.variables.items():  # labels of pandas are text in arrays of objects
        if of.dtype.kind == "O" and all(isinstance(one, str) for one in of.values.flat):
            dataset[name] = of.astype(str)
    for name, variable in dataset.variables.items():
        variable.attrs = _plain(variable.attrs, of=f"{name}.")
        dtype = variable.dtype
        if not (dtype.kind in "biuU" or (dtype.kind == "f" and dtype.itemsize in (4, 8))):
            raise InputError(
                f"{name}: dtype {dtype} cannot be saved; convert it with "
                f".astype({'str' if dtype.kind == 'O' else 'float'})"
            )
    return dataset


def _plain(attrs: Mapping[Any, Any], of: str = "") -> dict[Any, str | int | float]:
    """Return attributes as Python strings and numbers; netCDF returns numpy scalars."""
    plain: dict[Any, str | int | float] = {}
    for name, value in attrs.items():
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(
                f"attribute {of}{name}: expected a string or a number, got "
                f"{type(value).__name__}; store it as json.dumps(...)"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise InputError(f"attribute {of}{name}: {value} needs over 64 bits; store it as str")
        plain[name] = value
    return plain


def _encoding(dataset: xr.Dataset) -> dict[Hashable, dict[str, Any]]:
    """Return the encoding: float arrays compressed, without fill value because NaN is a value."""
    encoding: dict[Hashable, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        if variable.dtype.kind == "f":
            encoding[name] = {"_FillValue": None}
            if variable.size > 1:  # netCDF refuses a compressed scalar
                encoding[name] |= {"zlib": True, "complevel": 1, "shuffle": True}
    return encoding


def _refuse_changes(path: str | os.PathLike[str], dataset: xr.Dataset, written: xr.Dataset) -> None:
    def kinds(of: xr.Dataset) -> dict[Hashable, str]:
        # The width of a string array is padding: it comes back as narrow as its longest entry.
        dtypes = {name: variable.dtype for name, variable in of.variables.items()}
        return {name: "U" if d.kind == "U" else d.name for name, d in dtypes.items()}

    if not (written.identical(dataset) and kinds(written) == kinds(dataset)):
        raise InputError(
            f"{os.fspath(path)}: not written, because netCDF would change this dataset; use plain "
            "names, text without NUL characters, and no netCDF keyword (_FillValue, scale_factor, "
            "...) as an attribute"
        )

from __future__ import annotations

import errno
import hashlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from attnlab.files import netcdf as files
from attnlab.files.atomic import atomic_path
from attnlab.files.netcdf import SEAL_SIZE, DamagedFile, NotAResult, load, save


def result() -> xr.Dataset:
    rng = np.random.default_rng(0)
    return xr.Dataset(
        {
            "attention": (
                ("eta_z", "seed", "step", "sequence_class", "token"),
                rng.dirichlet(np.ones(6), size=(2, 3, 4, 2)).astype(np.float32),
                {"long_name": "c_{l|m,n}", "equation": 5},
            ),
            "loss": (("eta_z", "seed", "step"), rng.random((2, 3, 4))),
            "diverged": (("eta_z", "seed"), np.array([[True, False, True], [False] * 3])),
            "count": ("token", np.arange(6, dtype=np.int32)),
            "final_loss": ((), 0.1),
        },
        coords={
            "eta_z": [0.5, 1.0],
            "seed": [0, 1, 2],
            "step": np.array([0, 1, 10, 100]),
            "sequence_class": [0, 1],
            "query_token": ("sequence_class", [6, 6]),
            "next_token": ("sequence_class", [7, 8]),
            "token": np.arange(6),
            "token_name": ("token", np.array(["a", "bé", "", "été", "日本", "a b"])),
            "engine": "Sampled",
        },
        attrs={"spec": '{"T": 128}', "seed": 2**63, "eta_y": 0.1, "steps": 100, "note": ""},
    )


def assert_same(found: xr.Dataset, expected: xr.Dataset) -> None:
    xr.testing.assert_identical(found, expected)
    for name, variable in expected.variables.items():
        assert found[name].dtype == variable.dtype, name
        assert type(found[name].values) is np.ndarray
    for name, value in expected.attrs.items():
        assert type(found.attrs[name]) is type(value), name


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "result.nc"
    save(result(), path)
    return path


# -- round trip -------------------------------------------------------------------------------


def test_round_trip(saved: Path) -> None:
    assert_same(load(saved), result())
    assert os.listdir(saved.parent) == ["result.nc"]


def test_what_was_loaded_is_detached_and_saves_again(saved: Path, tmp_path: Path) -> None:
    loaded = load(saved)
    saved.unlink()
    loaded["loss"] += 1
    save(loaded, tmp_path / "again.nc")
    assert_same(load(str(tmp_path / "again.nc")), loaded)


def test_saving_leaves_the_dataset_alone(tmp_path: Path) -> None:
    dataset = result()
    dataset["loss"].encoding["scale_factor"] = 0.5  # from another file: not ours to apply
    dataset.attrs["momentum"] = np.float32(0.5)
    before = dataset.copy(deep=True)
    save(dataset, tmp_path / "a.nc")
    xr.testing.assert_identical(dataset, before)
    assert type(dataset.attrs["momentum"]) is np.float32
    assert dataset["loss"].encoding == {"scale_factor": 0.5}
    np.testing.assert_array_equal(load(tmp_path / "a.nc")["loss"], before["loss"])


@pytest.mark.parametrize(
    "values",
    [
        np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e308]),
        np.array([2**63 - 1, -(2**63)]),
        np.array([0, 2**64 - 1], dtype=np.uint64),
        np.array([], dtype=np.float32),
        np.zeros((3, 0, 2)),
        np.array(True),
        np.array("a name"),
        np.array(1.5, dtype=np.float32),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(12.0)[::-3],
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
def test_values_come_back_bit_for_bit(tmp_path: Path, values: np.ndarray[Any, Any]) -> None:
    dims = [f"dim{i}" for i in range(values.ndim)]
    save(xr.Dataset({"x": (dims, values)}), tmp_path / "a.nc")
    found = load(tmp_path / "a.nc")["x"].values
    assert found.dtype == values.dtype and found.shape == values.shape
    assert found.tobytes() == values.tobytes()


def test_time_stays_a_number(tmp_path: Path) -> None:
    dataset = xr.Dataset(
        {"loss": ("time", [1.0, 0.5])}, coords={"time": ("time", [0.0, 1e9], {"units": "days"})}
    )
    save(dataset, tmp_path / "a.nc")
    assert_same(load(tmp_path / "a.nc"), dataset)


def test_a_large_provenance_fits(tmp_path: Path) -> None:
    """HDF5 attributes had a limit of 64 KiB once; a spec with its classes may be larger."""
    dataset = result().assign_attrs(spec="x" * 1_000_000)
    save(dataset, tmp_path / "a.nc")
    assert_same(load(tmp_path / "a.nc"), dataset)


def test_other_tools_read_the_file(saved: Path) -> None:
    with xr.open_dataset(saved, engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["attention"], result()["attention"])


def test_the_seal_can_be_checked_by_hand(saved: Path) -> None:
    content, seal = saved.read_bytes()[:-80], saved.read_bytes()[-80:]
    digest = subprocess.run(["sha256sum"], input=content, capture_output=True, check=True).stdout
    assert seal.split()[-1] == digest.split()[0]


def test_labels_that_pandas_makes_are_text(tmp_path: Path) -> None:
    dataset = (
        xr.Dataset({"a": ("n", [1.0]), "b": ("n", [2.0])}).to_array("name").to_dataset(name="x")
    )
    assert dataset["name"].dtype == object
    save(dataset, tmp_path / "a.nc")
    found = load(tmp_path / "a.nc")
    assert found["name"].dtype.kind == "U" and found["name"].values.tolist() == ["a", "b"]


# -- what cannot be saved ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attrs": {"spec": {"T": 128}}}, r"^attribute spec: .*got dict; store it as json.dumps"),
        ({"attrs": {"x64": True}}, r"^attribute x64: .*got bool"),
        ({"attrs": {"big": 2**64}}, r"^attribute big: .*64 bits"),
        ({"attrs": {"text": "a\0b"}}, "netCDF would change this dataset|NULL"),
        ({"values": np.array([1 + 2j])}, r"^x: dtype complex128 cannot be saved"),
        ({"values": np.array(["a", 1], dtype=object)}, r"^x: dtype object .*astype\(str\)"),
        ({"values": np.array([1], dtype=np.float16)}, r"^x: dtype float16 .*astype\(float\)"),
        ({"x_attrs": {"shape": [1, 2]}}, r"^attribute x.shape: .*got list"),
        ({"x_attrs": {"scale_factor": 2.0}}, "netCDF would change this dataset|scale_factor"),
    ],
)
def test_what_netcdf_cannot_hold_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    values = change.get("values", np.array([1.0]))
    dataset = xr.Dataset(
        {"x": ("n", values, change.get("x_attrs", {}))}, attrs=change.get("attrs", {})
    )
    path = tmp_path / "a.nc"
    path.write_text("precious")
    with pytest.raises(ValueError, match=message):
        save(dataset, path)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["a.nc"]


# -- damage -----------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.nc")


def test_truncation_anywhere(saved: Path) -> None:
    whole = saved.read_bytes()
    cuts = {0, 1, 8, 79, 80, 81, 512, len(whole) // 2, len(whole) - SEAL_SIZE, len(whole) - 1}
    for cut in sorted(cuts):
        saved.write_bytes(whole[:cut])
        with pytest.raises(DamagedFile, match="result.nc: damaged .*wrote it, make it again"):
            load(saved)


def test_flipped_bits_anywhere(saved: Path) -> None:
    whole = saved.read_bytes()
    rng = np.random.default_rng(1)
    offsets = np.concatenate([rng.integers(len(whole), size=500), len(whole) - np.arange(1, 101)])
    for offset in offsets:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        with pytest.raises(DamagedFile):
            load(saved)


def test_bytes_added_or_moved(saved: Path) -> None:
    whole = saved.read_bytes()
    for changed in (whole + b"\n", whole[1:], whole[:1000] + whole[1001:], whole + whole):
        saved.write_bytes(changed)
        with pytest.raises(DamagedFile):
            load(saved)


def test_edited_attribute(saved: Path) -> None:
    with h5py.File(saved, "r+") as file:
        file.attrs["eta_y"] = 0.2
    with pytest.raises(DamagedFile, match="edited"):
        load(saved)


def test_edited_value(saved: Path) -> None:
    with h5py.File(saved, "r+") as file:
        file["loss"][0, 0, 0] = 0.0
    with pytest.raises(DamagedFile):
        load(saved)


def test_edited_value_under_the_old_seal(saved: Path) -> None:
    seal = saved.read_bytes()[-SEAL_SIZE:]
    with h5py.File(saved, "r+") as file:
        file["final_loss"][()] = 0.0
    with open(saved, "ab") as end:
        end.write(seal)
    with pytest.raises(DamagedFile, match="not match its checksum.*; delete it and make it again"):
        load(saved)


def test_checksum_missing(tmp_path: Path) -> None:
    result().to_netcdf(tmp_path / "plain.nc", engine="h5netcdf")
    with pytest.raises(DamagedFile, match="no checksum at its end: .*not from attnlab") as found:
        load(tmp_path / "plain.nc")
    assert "delete" not in str(found.value)  # it may be somebody's data
    assert issubclass(DamagedFile, ValueError)


def test_a_file_that_never_was_a_result_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A file that somebody needs\n" * 20)
    with pytest.raises(NotAResult, match="README.md: not a result of attnlab; give a .nc") as found:
        load(tmp_path / "README.md")
    assert "damaged" not in str(found.value)


# -- a full disk ------------------------------------------------------------------------------


def test_a_full_disk_names_the_file_and_leaves_the_old_one(saved: Path) -> None:
    before = saved.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(OSError, match="File too large") as found:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
            save(result(), saved)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.value.filename == str(saved)
    assert found.value.errno == errno.EFBIG
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_an_error_about_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as found, atomic_path(tmp_path / "a.txt") as temporary:
        temporary.write_text((tmp_path / "absent").read_text())
    assert found.value.filename == str(tmp_path / "absent")


# -- what is elsewhere ------------------------------------------------------------------------


def sealed(path: Path) -> Path:
    """Seal a file as `save` does, whatever is in it."""
    content = path.read_bytes()
    path.write_bytes(content + files.SEAL % hashlib.sha256(content).hexdigest().encode())
    return path


def external_storage(file: h5py.File, secret: Path) -> None:
    file.create_dataset("x", (5,), "u1", external=[(str(secret), 0, 5)])


def external_link(file: h5py.File, secret: Path) -> None:
    file["x"] = h5py.ExternalLink(str(secret), "/loss")


def soft_link(file: h5py.File, secret: Path) -> None:
    file["x"] = h5py.SoftLink("/loss")


def virtual(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((2, 3, 4), "f8")
    layout[...] = h5py.VirtualSource(str(secret), "loss", (2, 3, 4))
    file.create_virtual_dataset("x", layout)


def group(file: h5py.File, secret: Path) -> None:
    file.create_group("x")["y"] = h5py.ExternalLink(str(secret), "/loss")


@pytest.mark.parametrize("refer", [external_storage, external_link, soft_link, virtual, group])
def test_nothing_outside_the_file_is_read(tmp_path: Path, saved: Path, refer: Any) -> None:
    with h5py.File(tmp_path / "crafted.nc", "w") as file:
        refer(file, saved)
    with pytest.raises(DamagedFile, match="crafted.nc: damaged .'x' is not an array of this file"):
        load(sealed(tmp_path / "crafted.nc"))


def test_a_reference_is_not_even_followed(tmp_path: Path) -> None:
    """To a FIFO, at which one would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "crafted.nc", "w") as file:
        external_link(file, tmp_path / "pipe")
    with pytest.raises(DamagedFile, match="not an array of this file"):
        load(sealed(tmp_path / "crafted.nc"))


def test_what_does_not_fit_into_memory_is_not_tried(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "crafted.nc", "w") as file:
        file.create_dataset("x", (10**15,), "f8", chunks=(1000,))  # of which none is written
    with pytest.raises(ValueError, match="crafted.nc: would need 8 PB of memory; this machine has"):
        load(sealed(tmp_path / "crafted.nc"))


def test_a_seal_alone_makes_no_result(tmp_path: Path) -> None:
    (tmp_path / "text.nc").write_text("text")
    with pytest.raises(DamagedFile, match="text.nc: damaged .sealed, but no netCDF file"):
        load(sealed(tmp_path / "text.nc"))


# -- atomic writing ---------------------------------------------------------------------------


def test_a_failed_save_keeps_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def half_written(path: Path) -> xr.Dataset:
        path.write_bytes(before[:100])
        raise OSError("No space left on device")

    monkeypatch.setattr(files, "load", half_written)
    with pytest.raises(OSError, match="No space left"):
        save(result() * 2, saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["result.nc"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_atomic_path_cleans_up(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(error), atomic_path(target) as temporary:
        temporary.write_text("half of the n")
        assert target.read_text() == "old"
        raise error
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_a_killed_writer_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    target.write_text("old")
    script = (
        "import os, signal, sys\n"
        "from attnlab.files.atomic import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half of the n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", script, target], env=environment)
    assert killed.returncode == -9
    assert target.read_text() == "old"


def test_atomic_path_writes_whole_files(tmp_path: Path) -> None:
    target = tmp_path / "picture.png"
    with atomic_path(str(target)) as temporary:
        assert temporary.parent == tmp_path and temporary.suffix == ".png"
        temporary.write_bytes(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert target.stat().st_mode == ordinary.stat().st_mode  # as open() would have made it


def test_atomic_path_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    with atomic_path(tmp_path / "link.csv") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_atomic_path_names_a_wrong_place(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match="the folder .*absent is not there; make it first"),
        atomic_path(tmp_path / "absent" / "a.csv"),
    ):
        pass
    with pytest.raises(IsADirectoryError, match="is a folder"), atomic_path(tmp_path):
        pass

"""A sweep on disk: what is whole is kept, what is damaged is made again, nothing is overstated."""

import csv
import errno
import json
import os
import shutil
import subprocess
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tiny_sweep import in_groups, tiny

import attnlab
from attnlab.results import DamagedFile, files
from attnlab.results.code import digest_of
from attnlab.sweep import Stopped, open_sweep, run_in, status
from attnlab.sweep.group import Place
from attnlab.sweep.index import Entry, Index, index_document
from attnlab.sweep.schema import Schema
from attnlab.sweep.store import Folder

PLAN = in_groups(tiny())
KEYS = [group.key for group in PLAN.groups]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    run_in(folder, PLAN)
    return folder


@pytest.fixture
def done(original, tmp_path):
    """The directory of a finished sweep."""
    return Path(shutil.copytree(original, tmp_path / "sweep"))


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in (folder / "groups").iterdir()}


def test_a_sweep_is_kept_and_opened(done):
    result = open_sweep(done)
    in_memory = attnlab.sweep(
        PLAN.recipe.classes, grid=PLAN.recipe.grid, ratio=2.0, steps=10, seeds=2,
        save=PLAN.recipe.save,
    )  # fmt: skip
    xr.testing.assert_identical(result.load().drop_attrs(), in_memory.drop_attrs())
    before = bytes_of(done)
    again = run_in(done, PLAN)
    assert (again.kept, again.computed) == (4, 0)
    assert bytes_of(done) == before


def test_opening_reads_nothing_and_indexing_reads_what_is_asked(done, monkeypatch):
    read = []
    real = Folder.read
    monkeypatch.setattr(Folder, "read", lambda self, key: read.append(key) or real(self, key))
    result = open_sweep(done)
    assert read == []
    whole = result.load().attention
    read.clear()
    lazy = open_sweep(done).attention
    cell = {"common_prob": 0.2, "eta_z": 1.0}
    np.testing.assert_array_equal(lazy.sel(cell), whole.sel(cell))
    assert read == [KEYS[1]]
    for chosen in (
        {"common_prob": [3, 0], "seed": 1},
        {"common_prob": slice(None, None, -1), "token": [5, 2], "step": -1},
        {"eta_z": [1, 1, 0], "sequence_class": slice(1, None)},
    ):
        np.testing.assert_array_equal(lazy.isel(chosen), whole.isel(chosen))
    points = {"common_prob": xr.DataArray([0, 3], dims="p"), "seed": xr.DataArray([1, 0], dims="p")}
    np.testing.assert_array_equal(lazy.isel(points), whole.isel(points))


def test_the_table_has_a_row_for_each_cell(done):
    with open(done / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    result = open_sweep(done)
    row = rows[5]
    assert (row["common_prob"], row["eta_z"], row["seeds"], row["failed"]) == (
        "0.3",
        "1.0",
        "2",
        "0",
    )
    cell = result.sel(common_prob=0.3, eta_z=1.0)
    for name in ("final_entropy", "final_loss", "final_common_mass", "final_distinct_entropy"):
        assert float(row[f"{name}_mean"]) == pytest.approx(float(cell[name].mean()), rel=1e-6)
    assert {name for name in row if name.startswith("snap")} == {"snap_step_mean", "snap_step_std"}


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone", "foreign"])
def test_what_is_damaged_is_made_again_and_nothing_else(done, damage):
    before = bytes_of(done)
    path = done / "groups" / f"{KEYS[2]}.nc"
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
        with pytest.raises(ValueError, match="3 of 4 groups are done; run the same"):
            open_sweep(done)
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes({
            "cut": content[:-100], "flip": content, "empty": b"", "foreign": b"text" * 100,
        }[damage])  # fmt: skip
        with pytest.raises(DamagedFile):
            open_sweep(done).attention.load()
    again = run_in(done, PLAN)
    assert (again.kept, again.computed) == (3, 1)
    other = {name: content for name, content in bytes_of(done).items() if name != path.name}
    assert other == {name: content for name, content in before.items() if name != path.name}
    if damage == "flip":
        states = [e["state"] for e in Folder(done).ledger.entries() if e["group"] == KEYS[2]]
        assert states == ["running", "done", "damaged", "running", "done"]
    assert open_sweep(done).finished.all()


def test_a_damaged_index_or_plan_is_noticed(done):
    index = json.loads((done / "index.json").read_text())
    index["index"]["seeds"] = [0, 7]
    (done / "index.json").write_text(json.dumps(index))
    with pytest.raises(DamagedFile, match="index.json"):
        open_sweep(done)
    (done / "plan.json").write_text("{")
    with pytest.raises(ValueError, match="not the directory of a sweep"):
        open_sweep(done)
    assert run_in(done, PLAN).computed == 0
    assert open_sweep(done).finished.all()


def test_another_recipe_in_the_directory_reuses_what_it_can(done):
    fewer = tiny(grid={"common_prob": (0.2, 0.4), "eta_z": (0.5, 1.0)})
    ran = run_in(done, in_groups(fewer))
    assert (ran.kept, ran.computed) == (2, 0)
    assert open_sweep(done).sizes["common_prob"] == 2
    assert not status(done).failed


def test_a_torn_line_of_the_ledger_is_passed_over(done):
    with open(done / "ledger.jsonl", "a") as file:
        file.write('{"group": "abc", "sta')
    store = Folder(done)
    store.note(KEYS[0], "failed", cause="for this test")
    entries = list(store.ledger.entries())
    assert len(entries) == 9
    assert entries[-1]["cause"] == "for this test"


@pytest.fixture
def small_disk(original, tmp_path):
    """A disk with room for two groups of four: a real one, where that is allowed."""
    group = max(path.stat().st_size for path in (original / "groups").iterdir())
    room = f"size={2 * group + 2**14}"
    mounted = ["mount", "-t", "tmpfs", "-o", room, "attnlab-test", str(tmp_path)]
    if subprocess.run(mounted, capture_output=True).returncode:
        yield None
        return
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_leaves_nothing_damaged_and_is_resumed(tmp_path, small_disk, monkeypatch):
    if small_disk is None:  # no right to mount: the same error, from the place that writes
        left = [2]
        real = files.atomic_path

        def full(path):
            left[0] -= str(path).endswith(".nc")
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path)

        monkeypatch.setattr(files, "atomic_path", full)
    with pytest.raises(Stopped, match=r"of 4 groups are kept; put that right and run the same"):
        run_in(tmp_path, PLAN)
    state = status(tmp_path)
    assert not state.complete
    assert 0 < state.done < 4
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".attnlab-")]
    for path in (tmp_path / "groups").glob("*.nc"):
        files.verify(path)
    with pytest.raises(ValueError, match="run the same"):
        open_sweep(tmp_path)
    if small_disk is None:
        monkeypatch.undo()
    else:
        grow = ["mount", "-o", "remount,size=4m", str(tmp_path)]
        subprocess.run(grow, check=True, capture_output=True)
    again = run_in(tmp_path, PLAN)
    assert again.kept == state.done
    assert again.kept + again.computed == 4
    assert open_sweep(tmp_path).finished.all()


def test_ten_thousand_cells_open_at_once(tmp_path):
    """A directory with 10,000 groups, made by hand: opening goes by its index alone."""
    prob = tuple(np.linspace(0.1, 0.2, 10_000).tolist())
    dims = ("setting", "cell", "seed", "step", "sequence_class", "token")
    schema = Schema({"attention": (dims, "<f4")}, {"step": 101, "sequence_class": 2, "token": 1000})
    entries = tuple(Entry(Place((i,), (0, 1), (0, 1)), f"{i:024d}", 0) for i in range(10_000))
    document = index_document(
        Index({"common_prob": prob}, {"eta_z": (1.0,)}, (0,), (schema,), entries)
    )
    record = {"plan": "p", "sha256": digest_of(document), "attrs": {}, "index": document}
    (tmp_path / "index.json").write_text(json.dumps(record))
    groups = [[entry.key, 1] for entry in entries]
    (tmp_path / "plan.json").write_text(json.dumps({"digest": "p", "groups": groups}))
    (tmp_path / "groups").mkdir()
    for key, _ in groups:
        (tmp_path / "groups" / f"{key}.nc").touch()
    begun = time.thread_time()  # other tests' threads may be at work in this process
    result = open_sweep(tmp_path)
    assert time.thread_time() - begun < 2
    assert result.attention.nbytes == 10_000 * 101 * 2 * 1000 * 4  # 8 GB
    tracemalloc.start()
    result = open_sweep(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * 2**20

"""A sweep on disk: what is whole is kept, what is damaged is made again, nothing is overstated."""

import copy
import csv
import errno
import os
import shutil
import subprocess
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tiny_sweep import in_groups, tiny

import attnlab
from attnlab.files import netcdf as files
from attnlab.files.errors import InputError
from attnlab.files.netcdf import DamagedFile
from attnlab.files.recipe import plain
from attnlab.files.sealed import unseal, write_sealed
from attnlab.sweeping import Stopped, group, open_sweep, run_in, status
from attnlab.sweeping.group import Place, Schema
from attnlab.sweeping.index import Entry, Index
from attnlab.sweeping.store import Folder

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


@pytest.mark.slow
def test_a_sweep_is_kept_and_opened(done):
    result = open_sweep(done)
    in_memory = attnlab.sweep(
        PLAN.recipe.given["task"],
        gradient="population",
        grid=PLAN.recipe.grid,
        ratio=2.0,
        momentum=0.0,
        steps=10,
        seeds=2,
        record=PLAN.recipe.given["record"],
    )
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
        path.write_bytes(
            {"cut": content[:-100], "flip": content, "empty": b"", "foreign": b"text" * 100}[damage]
        )
        with pytest.raises(DamagedFile):
            open_sweep(done).attention.load()
    again = run_in(done, PLAN)
    assert (again.kept, again.computed) == (3, 1)
    other = {name: content for name, content in bytes_of(done).items() if name != path.name}
    assert other == {name: content for name, content in before.items() if name != path.name}
    if damage == "flip":
        states = [e["state"] for e in Folder(done).ledger.read()[0] if e["group"] == KEYS[2]]
        assert states == ["running", "done", "damaged", "running", "done"]
    assert open_sweep(done).finished.all()


@pytest.mark.slow
def test_two_files_that_were_swapped_are_not_taken_for_each_other(done):
    expected = open_sweep(done).load()
    rows = (done / "table.csv").read_text()
    first, second = (done / "groups" / f"{key}.nc" for key in KEYS[:2])
    first.rename(done / "aside")
    second.rename(first)
    (done / "aside").rename(second)
    with pytest.raises(DamagedFile, match=f"{KEYS[0]}.nc: damaged .the file of another group"):
        open_sweep(done).attention.load()
    assert run_in(done, PLAN).computed == 2
    xr.testing.assert_identical(open_sweep(done).load().drop_attrs(), expected.drop_attrs())
    assert (done / "table.csv").read_text() == rows


def flips(content, step):
    """The content with one bit changed, at every `step` bytes."""
    for place in range(0, len(content), step):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        yield bytes(flipped)


@pytest.mark.parametrize("name", ["plan.json", "index.json", "ledger.jsonl", "table.csv"])
def test_a_changed_byte_in_any_other_file_of_a_sweep_is_noticed(done, name):
    expected, path = status(done), done / name
    content = path.read_bytes()
    if name.endswith(".json"):
        for flipped in flips(content, 1):
            with pytest.raises(ValueError, match="checksum"):
                unseal(flipped)
    for flipped in flips(content, 41):
        path.write_bytes(flipped)
        if name == "plan.json":
            with pytest.raises(DamagedFile, match="plan.json: damaged .*; run the same"):
                status(done)
            continue
        state = status(done)
        assert name in state.damaged[0]
        if name == "index.json":
            assert not state.complete
            with pytest.raises(DamagedFile, match="index.json: damaged .*; run the same"):
                open_sweep(done)
        else:  # nothing else depends on it
            assert replace(state, damaged=()) == expected
    assert run_in(done, PLAN).computed == 0
    assert bool(status(done).damaged) == (name == "ledger.jsonl")  # whose lines stay as they are
    assert open_sweep(done).finished.all()


def test_no_byte_of_a_group_can_change_unnoticed(done):
    path = done / "groups" / f"{KEYS[2]}.nc"
    for flipped in flips(path.read_bytes(), 997):
        path.write_bytes(flipped)
        with pytest.raises(DamagedFile), Folder(done).read(KEYS[2]):
            pass


def test_the_ledger_keeps_the_traceback_of_a_group_that_raised(tmp_path, monkeypatch):
    def broken(simulation, **given):
        raise ZeroDivisionError("for this test")

    monkeypatch.setattr(group, "simulate", broken)
    assert run_in(tmp_path, PLAN).index.failed_runs == PLAN.runs
    failed = [e for e in Folder(tmp_path).ledger.read()[0] if e["state"] == "failed"]
    assert len(failed) == len(PLAN.groups)
    for entry in failed:
        assert entry["cause"] == "ZeroDivisionError: for this test"
        assert entry["traceback"].startswith("Traceback (most recent call last):")
        assert "in broken" in entry["traceback"]


def test_a_damaged_line_of_the_ledger_does_not_hide_what_failed(done):
    """Neither where the sweep is whole, nor where it is not and the line was all that said so."""
    (done / "groups" / f"{KEYS[1]}.nc").unlink()
    Folder(done).note(KEYS[1], "failed", cause="for this test", failed_runs=4)
    assert (status(done).failed, status(done).waiting) == (0, 1)  # by the index it was done
    (done / "index.json").unlink()
    assert (status(done).failed, status(done).causes) == (1, {KEYS[1]: "for this test"})
    ledger = done / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"for this test", b"for that test"))
    state = status(done)
    assert (state.failed, state.waiting) == (0, 1)
    assert state.damaged == ("ledger.jsonl: 1 of its lines cannot be read",)


def test_what_is_sealed_but_not_ours_is_refused(done, tmp_path):
    """Keys become the names of files: one that leads elsewhere is none."""
    index = unseal((done / "index.json").read_bytes())
    for change in (
        lambda of: of["index"]["groups"][0].__setitem__("key", "../../secret"),
        lambda of: of["index"]["groups"][0].pop("place"),
        lambda of: of.pop("attrs"),
        lambda of: of.__setitem__("index", None),
    ):
        wrong = copy.deepcopy(index)
        change(wrong)
        write_sealed(done / "index.json", wrong)
        with pytest.raises(DamagedFile, match="index.json: damaged .not from attnlab"):
            open_sweep(done)
    write_sealed(done / "plan.json", {"digest": "", "memory_budget": 1, "runs": {"../x": 1}})
    with pytest.raises(DamagedFile, match="plan.json: damaged .not from attnlab: '../x'"):
        status(done)
    assert run_in(done, PLAN).computed == 0
    assert open_sweep(done).finished.all()


@pytest.mark.parametrize("name", ["plan.json", "index.json", "table.csv", f"groups/{KEYS[0]}.nc"])
def test_what_is_no_file_is_not_waited_for(done, name):
    (done / name).unlink()
    os.mkfifo(done / name)
    if name in ("plan.json", "index.json"):
        with pytest.raises(DamagedFile, match=f"{name}: damaged .*not a file but a named pipe"):
            open_sweep(done)
    elif name == "table.csv":
        assert "not a file but a named pipe" in status(done).damaged[0]
    else:
        with pytest.raises(ValueError, match="not a file but a named pipe"):
            open_sweep(done).attention.load()
    assert run_in(done, PLAN).computed == name.startswith("groups")
    assert status(done).complete


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
    entries, torn = store.ledger.read()
    assert (len(entries), torn) == (9, 1)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_ctrl_c_keeps_the_groups_that_are_done(tmp_path):
    def impatient(runs, note):
        if note.startswith("1 of 4"):
            raise KeyboardInterrupt

    plan, out = in_groups(tiny()), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt, match="^stopped; 1 of 4 groups are kept, and the same"):
        run_in(out, plan, report=impatient)
    assert status(out).running == 0
    ran = run_in(out, plan)
    assert (ran.kept, ran.computed) == (1, 3)


def empty_sweep(folder, groups):
    """Write a sweep of empty groups; return the size of its attention."""
    prob = tuple(np.linspace(0.1, 0.2, groups).tolist())
    dims = ("setting", "cell", "seed", "step", "sequence_class", "token")
    schema = Schema({"attention": (dims, "<f4")}, {"step": 101, "sequence_class": 2, "token": 1000})
    entries = tuple(Entry(Place((i,), (0, 1), (0, 1)), f"{i:024d}", 0) for i in range(groups))
    index = Index({"common_prob": prob}, {"eta_z": (1.0,)}, (0,), (schema,), entries)
    record = {"plan": "p", "table": "", "attrs": {}, "index": plain(index, defaults=True)}
    write_sealed(folder / "index.json", record)
    runs = {entry.key: 1 for entry in entries}
    write_sealed(folder / "plan.json", {"digest": "p", "memory_budget": 1, "runs": runs})
    (folder / "groups").mkdir()
    for key in runs:
        (folder / "groups" / f"{key}.nc").touch()
    return groups * 101 * 2 * 1000 * 4


@pytest.mark.slow
def test_ten_thousand_cells_open_at_once(tmp_path):
    """Opening goes by the index alone."""
    size = empty_sweep(tmp_path, 10_000)
    begun = time.thread_time()  # other tests' threads may be at work in this process
    result = open_sweep(tmp_path)
    assert time.thread_time() - begun < 2
    assert result.attention.nbytes == size  # 8 GB


def test_opening_takes_no_memory_for_arrays(tmp_path):
    size = empty_sweep(tmp_path, 1000)
    tracemalloc.start()
    result = open_sweep(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.attention.nbytes == size > 200 * peak


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table.csv", "plan.json", "ledger.jsonl", "index.json", "groups"])
@pytest.mark.parametrize("finished", [False, True])
def test_a_planted_link_is_refused_and_its_target_stays(original, tmp_path, name, finished):
    out, victim = tmp_path / "out", tmp_path / "victim"
    if finished:
        shutil.copytree(original, out)
        (out / name).rename(tmp_path / "moved")
    out.mkdir(exist_ok=True)
    victim.mkdir() if name == "groups" else victim.write_text("mine")
    (out / name).symlink_to(victim)
    with pytest.raises(InputError, match=rf"{name}: is a link.*; remove the link, or give another"):
        run_in(out, PLAN)
    assert (out / name).is_symlink()
    assert list(victim.iterdir()) == [] if name == "groups" else victim.read_text() == "mine"


def test_files_of_somebody_else_are_not_replaced(tmp_path):
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(InputError, match=r"table\.csv: is there, and is not one of the files"):
        run_in(tmp_path, PLAN)
    assert (tmp_path / "table.csv").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]

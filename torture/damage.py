"""Damage: every byte of what is kept, and files cut, swapped, gone or of another kind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from torture.campaign import RIGHT, Campaign, Case, Verdict, bad, judged
from torture.verbs import CLASSES, SMALL_TEXT, SWEEP, prepare, same

KINDS = ("cut", "longer", "empty", "zeros", "gone", "swapped", "folder", "fifo", "loop")


@dataclass(frozen=True)
class Kept:
    """Something that was kept in files, and how it is read back."""

    files: tuple[Path, ...]
    read_back: Callable[[], Any]
    mend: Callable[[], Any] | None = None  # makes it whole again, and gives its values


class Damage(Campaign):
    """Damage is noticed when reading raises an error that names the file, and harmless when what
    is read is the same to the last bit: a ledger that is gone, by which a whole sweep does not go.
    """

    name, share = "damage", 0.2

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept = _kept(folder)
        self.mended = {name: kept.mend() for name, kept in self.kept.items() if kept.mend}
        self.whole = {name: kept.read_back() for name, kept in self.kept.items()}
        self.bytes = {path: path.read_bytes() for kept in self.kept.values() for path in kept.files}

    def cases(self, draw: Random) -> Iterator[Case]:
        """Every byte once, in any order, with other damage in between."""
        every = [
            (name, path, at)
            for name, kept in self.kept.items()
            for path in kept.files
            for at in range(len(self.bytes[path]))
        ]
        draw.shuffle(every)
        for name, path, at in every:
            mask = draw.choice((1 << draw.randrange(8), 255))
            yield self._case(name, path, "flip", at=at, mask=mask, mend=draw.random() < 0.005)
            if draw.random() < 0.1:
                name = draw.choice(list(self.kept))
                path = draw.choice(self.kept[name].files)
                at = draw.randrange(len(self.bytes[path]) + 1)
                yield self._case(name, path, draw.choice(KINDS), at=at, mend=draw.random() < 0.2)

    def _case(self, name: str, path: Path, kind: str, **more: int) -> Case:
        return Case(name, {"file": str(path.relative_to(self.folder)), "kind": kind, **more})

    def judge(self, case: Case) -> Verdict:
        kept = self.kept[case.target]
        changed = self._damage(self.folder / case.given["file"], case.given)
        mended: list[Path] = []
        try:
            return judged(partial(self._judge, case, kept, mended))
        finally:
            for path in dict.fromkeys((*changed, *mended)):
                self._restore(path)

    def _judge(self, case: Case, kept: Kept, mended: list[Path]) -> Verdict:
        try:
            found = kept.read_back()
        except Exception:
            if kept.mend is not None and case.given["mend"]:
                mended += kept.files
                if not same(kept.mend(), self.mended[case.target]):
                    return bad("not the same after it was made again")
            raise
        return RIGHT if same(found, self.whole[case.target]) else bad("damage went unnoticed")

    def _damage(self, path: Path, given: dict[str, Any]) -> list[Path]:
        """Do it; the files that have to be restored."""
        data, kind, at = self.bytes[path], given["kind"], given["at"]
        if kind == "flip":
            with open(path, "r+b") as file:
                file.seek(at)
                file.write(bytes([data[at] ^ given["mask"]]))
        elif kind == "swapped":
            others = [
                each
                for each in path.parent.iterdir()
                if each.suffix == path.suffix and each.is_file()
            ]
            other = next((each for each in others if each != path), path)
            path.write_bytes(self.bytes.get(other, b"other"))
            if other in self.bytes:
                other.write_bytes(data)
            return [path, other]
        else:
            path.unlink()
            changed = {
                "cut": data[:at],
                "longer": data + data[:at],
                "empty": b"",
                "zeros": data[:at] + bytes(len(data) - at),
            }
            if kind in changed:
                path.write_bytes(changed[kind])
            elif kind == "folder":
                path.mkdir()
            elif kind == "fifo":
                os.mkfifo(path)
            elif kind == "loop":
                path.symlink_to(path.name)
        return [path]

    def _restore(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.exists():
            path.unlink()
        if path in self.bytes:
            path.write_bytes(self.bytes[path])


def _kept(folder: Path) -> dict[str, Kept]:
    """One of each thing that attnlab keeps and reads again."""
    from attnlab.experiments.running import file_digest, read_record
    from attnlab.files.checkpoint import read_checkpoint
    from attnlab.files.netcdf import load, save
    from attnlab.files.recipe import as_value
    from attnlab.simulation import simulate, text_run
    from attnlab.sweeping import Stopped, SweepRecipe, make_plan, open_sweep, run_in, status
    from attnlab.tasks.text import open_corpus

    prepare(folder)
    small = {"grid": {"common_prob": [0.1, 0.4]}, "eta_z": 1.0, "seeds": 1}
    plan = make_plan(as_value("", {**SWEEP, **small}, SweepRecipe), memory_budget=1)
    run_in(sweep := folder / "sweep", plan)

    def look_at_sweep() -> Any:
        found = status(sweep)
        if found.damaged:  # which `attnlab sweep status` says
            raise ValueError("; ".join(found.damaged))
        return {"dataset": open_sweep(sweep).load(), "status": vars(found)}

    def mend_sweep() -> Any:
        try:
            run_in(sweep, plan)
        except Stopped as problem:  # by what cannot be replaced, which the command line says
            raise ValueError(str(problem)) from None
        return open_sweep(sweep).load().drop_attrs()

    result = simulate(CLASSES, eta_y=1.0, eta_z=1.0, steps=5, what="loss", progress=False)
    save(result, folder / "result.nc")

    corpus = open_corpus(folder / "text.txt", cache=folder)
    simulate(text_run(corpus, **SMALL_TEXT), out=folder / "run", progress=False)

    def look_at_checkpoint() -> Any:
        found = read_checkpoint(folder / "run" / "checkpoint.safetensors")
        arrays = {name: array.tobytes() for name, array in found.arrays.items()}
        return {"spec": found.spec, "step": found.step, **arrays}

    tokens = tuple((folder / "tokens").iterdir())
    (part := folder / "part").mkdir()
    _write_part(part, folder / "result.nc")

    def look_at_part() -> Any:
        found = read_record(part, "the key")
        if found is None:
            raise ValueError(f"{part}: not as it was written")
        return {**vars(found), "file": file_digest(part / "data.nc")}

    files = tuple(path for path in sorted(sweep.rglob("*")) if path.is_file())
    return {
        "sweep": Kept(files, look_at_sweep, mend_sweep),
        "result": Kept((folder / "result.nc",), lambda: load(folder / "result.nc")),
        "checkpoint": Kept((folder / "run" / "checkpoint.safetensors",), look_at_checkpoint),
        "tokens": Kept(tokens, lambda: open_corpus(folder / "text.txt", cache=folder).digest),
        "part": Kept((part / "part.json", part / "data.nc"), look_at_part),
    }


def _write_part(folder: Path, data: Path) -> None:
    from attnlab.experiments.running import Part, file_digest, write_record

    shutil.copy(data, folder / "data.nc")
    files = {"data.nc": file_digest(data)}
    made = Part(
        "fig0",
        "the key",
        "A title",
        "About it",
        "reproduced",
        "A line",
        "More",
        "In words",
        {"slope": -1.5},
        {"slope": [-2.0, 1.0]},
        {"seeds": "2"},
        files,
        1.5,
        "now",
        {"jax": "0"},
    )
    write_record(folder, made)

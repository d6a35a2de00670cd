"""Make experiments, one after another or two at a time, and report progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attnlab.experiments import Made
from attnlab.files.side_by_side import side_by_side


class Watcher:
    """Receives progress; this one says nothing."""

    def begin(self, name: str, left: Sequence[str]) -> None:
        """A part is begun; `left` are those that are not."""

    def progress(self, name: str, fraction: float) -> None:
        """A fraction of it is done."""

    def end(self, name: str, seconds: float, made: Made | None) -> None:
        """A part is finished; `made` is None for the report."""


class Making:
    """Runs experiments in the folder `out` and reports progress to `watch`.

    make: makes a part by its name; it gets a function to call with the fraction done, and returns
    None for the report. made: those that are finished. failed: whether one could not be made.
    """

    def __init__(
        self,
        names: Sequence[str],
        make: Callable[[str, Callable[[float], None]], Made | None],
        *,
        out: Path,
        watch: Watcher | None,
    ) -> None:
        self.out, self.left = out, list(names)
        self.made: dict[str, Made] = {}
        self.failed = False
        self._make, self._watch = make, watch or Watcher()
        self._names, self._begun = tuple(names), set[str]()

    def one_by_one(self, names: Sequence[str]) -> None:
        """Make these."""
        self.side_by_side(names, ())

    def side_by_side(self, here: Sequence[str], there: Sequence[str]) -> None:
        """Make these, one by one, and those in a thread of their own."""
        try:
            if here and there:
                side_by_side(lambda: self._go(here), lambda: self._go(there))
            else:
                self._go([*here, *there])
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"stopped in {' and '.join(sorted(self._begun))}; what was made before is in "
                f"{self.out}, and the same command goes on from there"
            ) from None

    @property
    def in_order(self) -> tuple[Made, ...]:
        """What is finished, in the order in which it was named."""
        return tuple(self.made[name] for name in self._names if name in self.made)

    def _go(self, names: Sequence[str]) -> None:
        """Make these until something fails, here or beside."""
        for name in names:
            if self.failed:
                return
            try:
                self._one(name)
            except BaseException:
                self.failed = True
                raise

    def _one(self, name: str) -> None:
        self.left.remove(name)
        self._begun.add(name)
        self._watch.begin(name, tuple(self.left))
        started = time.perf_counter()
        made = self._make(name, lambda fraction: self._watch.progress(name, fraction))
        if made is not None:
            self.made[name] = made
        self._watch.end(name, time.perf_counter() - started, made)
        self._begun.discard(name)

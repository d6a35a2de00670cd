"""A seam: a place through which a model's attention passes, where it can be seen."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.observing.seams.watch import Watch

_LOCK = threading.RLock()  # functions are replaced for all threads of the process


class Seam(ABC):
    """Stands in for the functions that attend, while somebody watches, and tells who does.

    A further seam is one file with a subclass that says which functions it stands in for
    (`stand_in`), and its place in `attnlab.observing.seams.SEAMS`. What it puts in place calls the
    original with the arguments that it was given, gives back what that gave, and beside it makes
    an `AttentionCall` of them for each watch (`self.watches`).
    """

    def __init__(self) -> None:
        self.watches: tuple[Watch, ...] = ()  # never changed in place: all threads go through it
        self._undo = ExitStack()

    @abstractmethod
    def stand_in(self, watch: Watch) -> None:
        """Take the places (`replace`) of the functions that the model of this watch may call."""

    @contextmanager
    def open(self, watch: Watch) -> Iterator[None]:
        """Tell this watch what passes. The last who leaves puts everything back.

        Watches may leave in any order: each would otherwise put back what it found, which may be
        the stand-in of another.
        """
        try:
            with _LOCK:
                self.watches = (*self.watches, watch)
                self.stand_in(watch)
            yield
        finally:
            with _LOCK:
                self.watches = tuple(one for one in self.watches if one is not watch)
                if not self.watches:
                    self._undo.close()

    def replace_by_name(self, watch: Watch, makers: Mapping[Any, Callable[..., Any]]) -> None:
        """Replace functions that a model has under names of its own: imported into the files of
        its classes, or set as attributes of its modules.

        makers: for each function, what makes its stand-in from it, or from it compiled.
        """
        homes = {type(module).__module__ for module in watch.model.modules()}
        files = [sys.modules[name] for name in homes if name in sys.modules]
        for owner in (*files, *watch.model.modules()):
            for name, value in list(vars(owner).items()):
                if not callable(value) or isinstance(value, type):
                    continue
                original = getattr(value, "_torchdynamo_orig_callable", value)
                if isinstance(original, Hashable) and original in makers:
                    self.replace(owner, name, makers[original](value))

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until nobody watches any more."""
        if name in vars(owner):
            self._undo.callback(setattr, owner, name, vars(owner)[name])
        else:  # it is inherited
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)

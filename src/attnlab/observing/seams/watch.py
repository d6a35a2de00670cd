"""Watching a model while it runs: which of its modules attends, and what was seen of it."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.observing.call import AttentionCall
from attnlab.observing.calls import follow, follow_all
from attnlab.observing.probe import sequences_read
from attnlab.observing.seams.sighting import Sighting

ATTENDS = re.compile("attention|attn", re.IGNORECASE)  # in the name of a class
Guard = Callable[[], AbstractContextManager[None]]
SMALL = 8  # modules of one whose output is held while the module around it runs
CROSSES = re.compile("cross|encdec|enc_dec|encoder_attn", re.IGNORECASE)  # in that of a module
Made = dict[int, tuple[Tensor, Tensor]]  # by the place of what was made: that, and from what


class Watch:
    """What is seen of one model, in its next forward (of a training, if only that is wanted).

    Holds the model's modules by identity and name: it lives as long as the forward that it
    watches. Other threads may run other models, or the same one, in the meantime: only what the
    thread of that forward does is seen, and of that only what modules of the model do: a teacher or
    a loss that its forward calls is a model of its own. guard: opened around the code that
    measures, within the model's own forward.
    """

    def __init__(
        self, model: nn.Module, see: Callable[[Sighting], None], *, only_training: bool = False,
        guard: Guard = nullcontext,
    ) -> None:  # fmt: skip
        self.model, self._see, self._guard = model, see, guard
        self.names = {id(module): name for name, module in model.named_modules()}
        # the modules that run, from the outermost to the innermost; None: of another model
        self.running: list[str | None] = []
        self.foreign: set[str] = set()  # classes of other models that attend inside the forward
        self.ran: dict[str, nn.Module] = {}  # all that ran
        self.times: Counter[str] = Counter()  # how often each has attended
        self.alone: set[str] = set()  # those that attend in code of their own
        self.products: set[tuple[str, tuple[int, ...]]] = set()  # of activations: who, what shape
        self.muted = False  # within a function that was seen, and while that is measured
        # whether the module that runs is known to attend to another sequence; None: not known
        self.cross: bool | None = None
        self.sequences = 0  # that the model reads
        self.appended = 0  # keys that it has put behind those of the sequence
        self.made: list[Made] = []  # by the modules inside each that runs
        self._outermost_foreign = ""
        self.over = False  # the forward that is watched has been seen to its end
        # the thread of that forward: this one, or the first that begins a forward of a training
        self.thread = None if only_training else threading.get_ident()

    @property
    def awake(self) -> bool:
        """Whether what passes now belongs to the forward that is watched.

        What is computed again in the backward pass runs without the whole model around it.
        """
        if threading.get_ident() != self.thread:
            return False
        inside = bool(self.running) and self.running[0] == "" and self.running[-1] is not None
        return inside and not (self.muted or self.over)

    @property
    def current(self) -> str:
        """The name of the innermost module of the model that runs."""
        return next(name for name in reversed(self.running) if name is not None)

    @property
    def next_layer(self) -> int:
        """The number of the layer that is seen next: they are counted as they come."""
        return self.times.total()

    def name_of(self, module: nn.Module) -> str | None:
        """The module's name in the model, or None if it belongs to another."""
        return self.names.get(id(module))

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Run code that measures, beside the model's own."""
        with self._guard(), torch.no_grad():
            yield

    def see(self, name: str, call: AttentionCall, output: Tensor, *, exact: bool) -> None:
        """Take note of a call that the module of this name has made."""
        self.times[name] += 1
        again = "" if self.times[name] == 1 else f"#{self.times[name]}"
        sighting = Sighting(call, output, name + again, type(self.ran[name]).__name__, exact)
        self.muted = True  # what is computed here is none of the model's
        try:
            self._see(sighting)
        finally:
            self.muted = False

    def origins(self, tensor: Tensor) -> list[Tensor]:
        """Return what a tensor was made from by modules of those that run, the nearest first.

        Views share the storage of what they are views of, so that this goes through chunks and
        transpositions of what a linear layer gave, but not through sums or rotations of it.
        """
        found: list[Tensor] = []
        while (made := self._maker(found[-1] if found else tensor)) is not None:
            found.append(made)
        return found

    def _maker(self, tensor: Tensor) -> Tensor | None:
        place = _place(tensor)
        return next((made[place][1] for made in reversed(self.made) if place in made), None)

    def comes_from_elsewhere(self, query: Tensor, key: Tensor) -> bool | None:
        """Return whether keys are made from another tensor than queries; None: not known."""
        first, second = self.origins(query), self.origins(key)
        if not (first and second):
            return None
        # views of one sequence overlap; two sequences of one tensor do not
        if _place(first[-1]) == _place(second[-1]):
            return not _overlap(first[-1], second[-1])
        return not any(differ_by_positions(*both) for both in itertools.product(first, second))

    def outputs(self) -> Iterator[Tensor]:
        """What modules inside of those that run have made, the latest first."""
        for made in reversed(self.made):
            yield from (output for output, _ in reversed(made.values()))

    def attends_alone(self) -> None:
        """Take note that the module that runs attends where no seam sees it."""
        self.alone.add(self.current)

    def note_foreign(self) -> None:
        """Take note that somebody attends, if that is another model inside the forward."""
        if threading.get_ident() == self.thread and self.running and self.running[-1] is None:
            self.foreign.add(self._outermost_foreign)

    def unseen(self) -> dict[str, str]:
        """What ran without being seen: modules that attend, by what they do or by the name of their
        class, and blocks of a stack in which others attend; their names and classes."""
        named = [name for name, module in self.ran.items() if ATTENDS.search(type(module).__name__)]
        known = {*self.times, *self.alone}
        found = set(self.alone)
        found |= {
            name
            for name in named
            if not any(_within(one, name) or _within(name, one) for one in known)
            and not any(other != name and _within(other, name) for other in named)
        }
        stacks = {self._stack(seen) for seen in self.times} - {None}
        found |= {
            name
            for name in self.ran
            if name.rpartition(".")[0] in stacks
            and not any(_within(one, name) for one in {*self.times, *found})
        }
        return {name: type(self.ran[name]).__name__ for name in self.ran if name in found}

    def _stack(self, name: str) -> str | None:
        """The name of the outermost list of modules that the module of this name is in."""
        parts = name.split(".")
        outer = (".".join(parts[:depth]) for depth in range(len(parts)))
        lists = (one for one in outer if isinstance(self.model.get_submodule(one), nn.ModuleList))
        return next(lists, None)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow which module runs."""
        with ExitStack() as opened:
            opened.callback(follow_all(self._enter_foreign))
            for name, module in self.model.named_modules():
                if name and _is_plain(module):
                    opened.callback(follow(module, after=self._take_made))
                    continue
                enter, leave = self._ends(name, module)
                opened.callback(follow(module, before=enter, after=leave))
            yield

    def _enter_foreign(self, module: nn.Module) -> Callable[[], None] | None:
        """Note that a module of another model runs; returns what notes its end.

        One without weights, or with weights of the model, may be a part that is made anew in each
        forward.
        """
        if not self.running or id(module) in self.names or threading.get_ident() != self.thread:
            return None
        if self.running[-1] is not None:
            weights = {id(weight) for weight in module.parameters()}
            if not weights or weights & {id(weight) for weight in self.model.parameters()}:
                return None
            self._outermost_foreign = type(module).__name__
        depth = len(self.running)
        self.running.append(None)
        self.made.append({})

        def leave() -> None:
            del self.running[depth:], self.made[depth:]

        return leave

    def _ends(
        self, name: str, module: nn.Module
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.thread is None and name == "" and trains(self.model):
                self.thread = threading.get_ident()
            if threading.get_ident() == self.thread:
                if name == "":
                    self.sequences = sequences_read(self.model, args, kwargs)
                self.running.append(name)
                self.made.append({})
                self.ran[name] = module

        # what a block makes of its input would keep the activations of all blocks alive
        small = sum(1 for _ in module.modules()) <= SMALL

        def leave(given: tuple[Any, ...], output: Any) -> None:
            if threading.get_ident() != self.thread:
                return
            if self.running and self.running[-1] == name:
                self.running.pop()
                self.made.pop()
            if not self.running and name == "":
                self.over = True
            if small:
                self._take_made(given, output)

        return enter, leave

    def _take_made(self, given: tuple[Any, ...], output: Any) -> None:
        """Note what a module makes of what."""
        if not self.made or threading.get_ident() != self.thread:
            return
        if isinstance(output, Tensor) and given and isinstance(given[0], Tensor):
            place = _place(output)
            if place != _place(given[0]):  # it may work in place
                self.made[-1][place] = (output, given[0])


def trains(model: nn.Module) -> bool:
    """Whether a forward that begins now is one of a training; to generate needs no gradients."""
    return model.training and torch.is_grad_enabled()


def crosses(name: str) -> bool:
    """Whether a module of this name attends to another sequence, as such modules are called."""
    return bool(CROSSES.search(".".join(name.split(".")[-2:])))


def _is_plain(module: nn.Module) -> bool:
    """Whether it is one of torch's own layers without parts, none of which attends."""
    return type(module).__module__.startswith("torch.nn.modules.") and not module._modules


def _place(tensor: Tensor) -> int:
    """Where the numbers of a tensor and of its views are; 0 if it has none (a sparse one)."""
    strided = tensor.layout == torch.strided and not tensor.is_nested
    return tensor.untyped_storage().data_ptr() if strided else 0


def _overlap(first: Tensor, second: Tensor) -> bool:
    """Whether two views of one storage have numbers between the ends of each other."""
    begun = [one.storage_offset() for one in (first, second)]
    ends = [
        start + sum((size - 1) * step for size, step in zip(one.shape, one.stride(), strict=True))
        for start, one in zip(begun, (first, second), strict=True)
    ]
    return max(begun) <= min(ends)


def differ_by_positions(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors of a batch differ by what is the same in all of its sequences: positions
    that were added to one of them. Of a single sequence nothing can be told."""
    alike = first.shape == second.shape and first.dtype == second.dtype
    if not (alike and first.ndim >= 3 and first.is_floating_point()):
        return False
    difference = first - second
    rounding = 4 * torch.finfo(first.dtype).eps * torch.maximum(first.abs(), second.abs()).amax()
    for dim in (0, 1):  # sequences are the first dim or the second
        varies, same = ((one - one.narrow(dim, 0, 1)).abs().amax() for one in (second, difference))
        if bool((same <= rounding) & (varies > rounding)):
            return True
    return False


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")

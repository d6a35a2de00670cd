"""Watching a model while it runs: which of its modules attends, and what was seen of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.observe.call import AttentionCall
from attnlab.observe.calls import follow
from attnlab.observe.seams.sighting import Sighting

ATTENDS = re.compile("attention|attn", re.IGNORECASE)  # in the name of a class
Guard = Callable[[], AbstractContextManager[None]]
CROSSES = re.compile("cross|encdec|enc_dec|encoder_attn", re.IGNORECASE)  # in that of a module


class Watch:
    """What is seen of one model, in its next forward (of a training, if only that is wanted).

    Holds the model's modules by identity and name: it lives as long as the forward that it
    watches. guard: opened around the code that measures, within the model's own forward.
    """

    def __init__(
        self, model: nn.Module, see: Callable[[Sighting], None], *, only_training: bool = False,
        guard: Guard = nullcontext,
    ) -> None:  # fmt: skip
        self.model, self._see, self.only_training = model, see, only_training
        self._guard = guard
        self.names = {id(module): name for name, module in model.named_modules()}
        self.running: list[str] = []  # the modules that run, from the outermost to the innermost
        self.ran: dict[str, nn.Module] = {}  # all that ran
        self.times: Counter[str] = Counter()  # how often each has attended
        self.alone: set[str] = set()  # those that attend in code of their own
        self.muted = False  # within a function that was seen, and while that is measured
        self.cross = False  # the module that runs is known to attend to another sequence
        self.ignored = False  # this forward is not the one that is waited for
        self.over = False  # that one has been seen to its end

    @property
    def awake(self) -> bool:
        """Whether what passes now belongs to the forward that is watched.

        What is computed again in the backward pass runs without the whole model around it.
        """
        inside = bool(self.running) and self.running[0] == ""
        return inside and not (self.muted or self.ignored or self.over)

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

    def attends_alone(self) -> None:
        """Take note that the module that runs attends where no seam sees it, or will be seen."""
        self.alone.add(self.running[-1])

    def unseen(self) -> dict[str, str]:
        """What ran without being seen: modules that attend, by what they do or by the name of their
        class, and blocks of a stack in which others attend; their names and classes."""
        named = [name for name, module in self.ran.items() if ATTENDS.search(type(module).__name__)]
        known = {*self.times, *self.alone}
        found = self.alone - self.times.keys()
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
            for name, module in self.model.named_modules():
                if name and _is_plain(module):
                    continue
                enter, leave = self._ends(name, module)
                opened.callback(follow(module, before=enter, after=leave))
            yield

    def _ends(
        self, name: str, module: nn.Module
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        def enter(*_: Any) -> None:
            if not self.running:
                self.ignored = self.only_training and not trains(self.model)
            self.running.append(name)
            self.ran[name] = module

        def leave(*_: Any) -> None:
            if self.running and self.running[-1] == name:
                self.running.pop()
            if not self.running and name == "" and not self.ignored:
                self.over = True

        return enter, leave


def trains(model: nn.Module) -> bool:
    """Whether a forward that begins now is one of a training; to generate needs no gradients."""
    return model.training and torch.is_grad_enabled()


def crosses(name: str) -> bool:
    """Whether a module of this name attends to another sequence, as such modules are called."""
    return bool(CROSSES.search(".".join(name.split(".")[-2:])))


def _is_plain(module: nn.Module) -> bool:
    """Whether it is one of torch's own layers without parts, none of which attends."""
    return type(module).__module__.startswith("torch.nn.modules.") and not module._modules


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")

"""Detection of attention in a module's own code, which cannot be measured."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlab.observing.capture.base import Capture, Source

PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm", "einsum")
EXPONENTIALS = ("softmax", "exp", "exp_", "exp2")
FLEX = "torch.nn.attention.flex_attention"
# Called with a capture, the name of a function, its arguments and what it returned.
Note = Callable[[Capture, str, tuple[Any, ...], Any], None]
MIXTURE = 8  # a square of no more is a mixture of streams (hyper-connections)


class Softmax(Source):
    """Patches torch's softmax, exponentials and products, and notes modules that attend.

    A module attends if it takes the softmax or the exponential of a product of activations, all
    keys at a time or some; if it takes a softmax as wide as it is high, which what a router makes
    of experts is not; or if it calls flex_attention. Without it only the name of a module's class
    would tell.
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self._by_name: dict[Any, Any] = {}
            for note, names in ((_note_product, PRODUCTS), (_note_exponential, EXPONENTIALS)):
                for owner in (functional, torch, Tensor):
                    for name in names:
                        if hasattr(owner, name):
                            self._replace(owner, name, note)
            if (flex := sys.modules.get(FLEX)) is not None:
                self._replace(flex, "flex_attention", _note_flex)
        self.replace_by_name(capture, self._by_name)

    def _replace(self, owner: Any, name: str, note: Note) -> None:
        original, make = getattr(owner, name), functools.partial(self._noted, note)
        self.replace(owner, name, make(original))
        if owner is not Tensor:
            self._by_name[original] = make

    def _noted(self, note: Note, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose calls in active captures are noted."""
        name = getattr(original, "__name__", "")

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            for capture in self.captures:
                if capture.is_active:
                    note(capture, name, args, made)
            return made

        return call


def _note_product(capture: Capture, name: str, args: tuple[Any, ...], made: Any) -> None:
    if isinstance(made, Tensor) and made.ndim > 2 and not any(map(_is_weight, args)):
        capture.products.add((capture.current, tuple(made.shape)))


def _note_exponential(capture: Capture, name: str, args: tuple[Any, ...], made: Any) -> None:
    if not isinstance(made, Tensor) or made.ndim <= 2 or made.shape[-1] <= MIXTURE:
        return
    is_square = name == "softmax" and made.shape[-1] == made.shape[-2]
    if is_square or (capture.current, tuple(made.shape)) in capture.products:
        capture.note_unsupported()


def _note_flex(capture: Capture, *_: Any) -> None:
    capture.note_unsupported()


def _is_weight(value: Any) -> bool:
    """Check for a parameter, or a view of one."""
    return isinstance(value, nn.Parameter) or (
        isinstance(value, Tensor) and isinstance(value._base, nn.Parameter)
    )

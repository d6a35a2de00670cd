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
            for make, names in ((self._product, PRODUCTS), (self._exponential, EXPONENTIALS)):
                for owner in (functional, torch, Tensor):
                    for name in names:
                        if hasattr(owner, name):
                            self._replace(owner, name, make)
            if (flex := sys.modules.get(FLEX)) is not None:
                self._replace(flex, "flex_attention", self._flex)
        self.replace_by_name(capture, self._by_name)

    def _replace(self, owner: Any, name: str, make: Callable[..., Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        self.replace(owner, name, make(original))
        if owner is not Tensor:
            self._by_name[original] = make

    def _product(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(original)
        def product(*args: Any, **kwargs: Any) -> Tensor:
            made = original(*args, **kwargs)
            if isinstance(made, Tensor) and made.ndim > 2 and not any(map(_is_weight, args)):
                for capture in self.captures:
                    if capture.is_active:
                        capture.products.add((capture.current, tuple(made.shape)))
            return made

        return product

    def _exponential(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        square = getattr(original, "__name__", "") == "softmax"

        @functools.wraps(original)
        def exponential(*args: Any, **kwargs: Any) -> Tensor:
            made = original(*args, **kwargs)
            if isinstance(made, Tensor) and made.ndim > 2 and made.shape[-1] > MIXTURE:
                for capture in self.captures:
                    if capture.is_active and (
                        (square and made.shape[-1] == made.shape[-2])
                        or (capture.current, tuple(made.shape)) in capture.products
                    ):
                        capture.note_unsupported()
            return made

        return exponential

    def _flex(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def flex_attention(*args: Any, **kwargs: Any) -> Any:
            for capture in self.captures:
                if capture.is_active:
                    capture.note_unsupported()
            return original(*args, **kwargs)

        return flex_attention


def _is_weight(value: Any) -> bool:
    """Check for a parameter, or a view of one."""
    return isinstance(value, nn.Parameter) or (
        isinstance(value, Tensor) and isinstance(value._base, nn.Parameter)
    )

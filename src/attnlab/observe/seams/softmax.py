"""Attention in code of its own: it cannot be measured, but its softmax tells that it is there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attnlab.observe.seams.base import Seam
from attnlab.observe.seams.watch import Watch

NAME = "softmax"
MIXTURE = 8  # a square of no more is a mixture of streams (hyper-connections)


class Softmax(Seam):
    """Stands in for torch's softmax, and takes note of the modules that make maps with it.

    A map is as wide as it is high, which what a router makes of experts is not. Without it only
    the name of a module's class would tell that it attends.
    """

    def stand_in(self, watch: Watch) -> None:
        if len(self.watches) == 1:
            for owner in (functional, torch, Tensor):
                self.replace(owner, NAME, self._noting(getattr(owner, NAME)))

    def _noting(self, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(original)
        def softmax(*args: Any, **kwargs: Any) -> Tensor:
            made = original(*args, **kwargs)
            if made.ndim > 2 and made.shape[-1] == made.shape[-2] > MIXTURE:
                for watch in self.watches:
                    if watch.awake:
                        watch.attends_alone()
            return made

        return softmax

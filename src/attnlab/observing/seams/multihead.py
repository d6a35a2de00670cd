"""torch.nn.MultiheadAttention where it is asked for its weights, which it is by default."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import torch
from torch.backends import mha
from torch.nn import functional

from attnlab.observing.seams.base import Seam
from attnlab.observing.seams.watch import Watch, differ_by_positions

NAME = "multi_head_attention_forward"


class Multihead(Seam):
    """Where weights are asked for, torch computes them in products of its own, which no seam sees.

    The same is then computed once more without weights, for those who watch alone: that goes
    through `scaled_dot_product_attention`, after all that this function does to masks and biases.

    torch's fast path calls nothing that could be seen, so that modules that ask whether it is
    enabled get no for an answer. The flag itself belongs to the process: other threads may run
    other models, and it stays as it is.
    """

    def stand_in(self, watch: Watch) -> None:
        if len(self.watches) == 1:
            self.original = getattr(functional, NAME)
            self.signature = inspect.signature(self.original)
            self.replace(functional, NAME, self._attend)
            enabled = mha.get_fastpath_enabled
            self.replace(
                mha,
                enabled.__name__,
                lambda: enabled() and not any(watch.awake for watch in self.watches),
            )

    def _attend(self, *args: Any, **kwargs: Any) -> Any:
        given = self.signature.bind(*args, **kwargs)
        for watch in self.watches:
            watch.note_foreign()
        awake = [watch for watch in self.watches if watch.awake]
        query, key = given.arguments["query"], given.arguments["key"]
        alike = query is key or (
            query.shape == key.shape
            and (torch.equal(query, key) or differ_by_positions(query, key))
        )
        for watch in awake:
            watch.cross = not alike
            watch.appended = int(given.arguments.get("bias_k") is not None)
        weights = given.arguments.get("need_weights", True)
        try:
            for watch in awake:
                watch.muted = weights
            try:
                result = self.original(*args, **kwargs)
            finally:
                for watch in awake:
                    watch.muted = False
            if awake and weights:
                quiet = {"need_weights": False, "training": False}  # no dropout, no random number
                with ExitStack() as beside:
                    for watch in awake:
                        beside.enter_context(watch.beside())
                    self.original(**(given.arguments | quiet))
        finally:
            for watch in awake:
                watch.cross, watch.appended = None, 0
        return result

"""Source for torch.nn.MultiheadAttention that returns its weights, which it does by default."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import torch
from torch.backends import mha
from torch.nn import functional

from attnlab.observing.capture.base import Capture, Source, differ_by_positions, muted

NAME = "multi_head_attention_forward"


class Multihead(Source):
    """Patches `multi_head_attention_forward`: asked for weights, it computes them in products of
    its own, which no source captures.

    The same is then computed once more without weights, for the captures alone: that goes
    through `scaled_dot_product_attention`, after all that this function does to masks and biases.

    torch's fast path calls nothing that could be seen, so that modules that ask whether it is
    enabled get no for an answer. The flag itself belongs to the process: other threads may run
    other models, and it stays as it is.
    """

    def patch(self, capture: Capture) -> None:
        if len(self.captures) == 1:
            self.original = getattr(functional, NAME)
            self.signature = inspect.signature(self.original)
            self.replace(functional, NAME, self._attend)
            enabled = mha.get_fastpath_enabled
            self.replace(
                mha,
                enabled.__name__,
                lambda: enabled() and not any(capture.is_active for capture in self.captures),
            )

    def _attend(self, *args: Any, **kwargs: Any) -> Any:
        given = self.signature.bind(*args, **kwargs)
        captures = self.active_captures()
        query, key = given.arguments["query"], given.arguments["key"]
        alike = query is key or (
            query.shape == key.shape
            and (torch.equal(query, key) or differ_by_positions(query, key))
        )
        for capture in captures:
            capture.cross = not alike
            capture.appended = int(given.arguments.get("bias_k") is not None)
        weights = given.arguments.get("need_weights", True)
        try:
            with muted(captures, weights):
                result = self.original(*args, **kwargs)
            if captures and weights:
                quiet = {"need_weights": False, "training": False}  # no dropout, no random number
                with ExitStack() as measuring:
                    for capture in captures:
                        measuring.enter_context(capture.measuring())
                    self.original(**(given.arguments | quiet))
        finally:
            for capture in captures:
                capture.cross, capture.appended = None, 0
        return result

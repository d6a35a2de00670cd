"""Capture of attention calls: patch the functions through which models attend.

All sources are patched while a model is captured. Where one calls another (the function "sdpa" of
transformers calls torch's), only the outer call is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from torch import nn

from attnlab.observing.capture.base import Capture, CapturedCall, Guard, OutputCheck, Source
from attnlab.observing.capture.huggingface import HuggingFace
from attnlab.observing.capture.torch_functions import Multihead, ScaledDotProduct, Softmax

__all__ = ["SOURCES", "Capture", "CapturedCall", "OutputCheck", "Source", "capturing"]

SOURCES: tuple[Source, ...] = (HuggingFace(), Multihead(), ScaledDotProduct(), Softmax())


@contextmanager
def capturing(
    model: nn.Module,
    see: Callable[[CapturedCall], None],
    *,
    only_training: bool = False,
    guard: Guard = nullcontext,
) -> Iterator[Capture]:
    """Capture every attention call of the model's next forward pass, from all sources.

    guard: opened around the code that measures; it may keep errors away from the forward pass.
    """
    capture = Capture(model, see, only_training=only_training, guard=guard)
    with ExitStack() as opened:
        for source in SOURCES:
            opened.enter_context(source.open(capture))
        opened.enter_context(capture.following())
        yield capture

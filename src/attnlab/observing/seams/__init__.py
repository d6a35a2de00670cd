"""Seams: where attention is seen, for whatever model.

All are open at once while a model is watched. Where one calls another (the function "sdpa" of
transformers calls torch's), the outer one is heard alone.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from torch import nn

from attnlab.observing.seams.base import Seam
from attnlab.observing.seams.huggingface import HuggingFace
from attnlab.observing.seams.multihead import Multihead
from attnlab.observing.seams.sdpa import ScaledDotProduct
from attnlab.observing.seams.sighting import Doubt, Sighting
from attnlab.observing.seams.softmax import Softmax
from attnlab.observing.seams.watch import Guard, Watch

__all__ = ["SEAMS", "Doubt", "Seam", "Sighting", "Watch", "watching"]

SEAMS: tuple[Seam, ...] = (HuggingFace(), Multihead(), ScaledDotProduct(), Softmax())


@contextmanager
def watching(
    model: nn.Module, see: Callable[[Sighting], None], *, only_training: bool = False,
    guard: Guard = nullcontext,
) -> Iterator[Watch]:  # fmt: skip
    """See every attention call of the model's next forward, through all seams.

    guard: opened around the code that measures; it may keep errors away from the forward.
    """
    watch = Watch(model, see, only_training=only_training, guard=guard)
    with ExitStack() as opened:
        for seam in SEAMS:
            opened.enter_context(seam.open(watch))
        opened.enter_context(watch.following())
        yield watch

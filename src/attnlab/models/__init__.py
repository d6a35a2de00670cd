"""Models: what learns. A user's own is one class; `Transformer` has what the field studies."""

from attnlab.models.base import Model
from attnlab.models.transformer import Transformer

__all__ = ["Model", "Transformer"]

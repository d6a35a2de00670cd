"""Models, one file each on an abstract base."""

from attnlab.dynamics.models.base import Model
from attnlab.dynamics.models.embedded import Embedded
from attnlab.dynamics.models.extended import Extended
from attnlab.dynamics.models.pairwise import Pairwise

__all__ = ["Embedded", "Extended", "Model", "Pairwise"]

"""Engines, one file each on an abstract base."""

from attnlab.dynamics.engines.base import MOST_STEPS, Engine
from attnlab.dynamics.engines.flow import Flow
from attnlab.dynamics.engines.limit import Limit
from attnlab.dynamics.engines.sampled import Sampled

__all__ = ["MOST_STEPS", "Engine", "Flow", "Limit", "Sampled"]

"""Experiments and verdicts as files and as one self-contained page."""

from attnlab.report.make import Reproduction, reproduce
from attnlab.report.page import page

__all__ = ["Reproduction", "page", "reproduce"]

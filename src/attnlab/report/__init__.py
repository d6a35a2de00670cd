"""Figures and verdicts as files and as one self-contained page."""

from attnlab.report.citation import ATTNLAB_BIBTEX, PAPER_BIBTEX
from attnlab.report.make import PARTS, Reproduction, reproduce
from attnlab.report.page import page
from attnlab.report.part import Part

__all__ = [
    "ATTNLAB_BIBTEX",
    "PAPER_BIBTEX",
    "PARTS",
    "Part",
    "Reproduction",
    "page",
    "reproduce",
]

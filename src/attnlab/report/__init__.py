"""Experiments and verdicts as files and as one self-contained page."""

from attnlab.files.citation import ATTNLAB_BIBTEX, PAPER_BIBTEX
from attnlab.report.make import PARTS, Reproduction, make_studies, reproduce
from attnlab.report.page import page

__all__ = [
    "ATTNLAB_BIBTEX",
    "PAPER_BIBTEX",
    "PARTS",
    "Reproduction",
    "make_studies",
    "page",
    "reproduce",
]

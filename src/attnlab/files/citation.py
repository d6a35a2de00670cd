"""How to cite attnlab itself; a paper's entry is `Paper.citation`."""

from __future__ import annotations

from attnlab import __version__

ATTNLAB_BIBTEX = f"""\
@software{{attnlab,
  title   = {{attnlab: a laboratory for the training dynamics of attention}},
  author  = {{{{The attnlab developers}}}},
  version = {{{__version__}}},
  year    = {{2026}},
}}"""

"""What to cite."""

from __future__ import annotations

from attnlab import __version__

PAPER_BIBTEX = """\
@inproceedings{tian2023scan,
  title     = {Scan and Snap: Understanding Training Dynamics and Token Composition
               in 1-layer Transformer},
  author    = {Tian, Yuandong and Wang, Yiping and Chen, Beidi and Du, Simon},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {36},
  year      = {2023},
  eprint    = {2305.16380},
  eprinttype = {arxiv},
}"""

ATTNLAB_BIBTEX = f"""\
@software{{attnlab,
  title   = {{attnlab: a laboratory for the training dynamics of attention}},
  author  = {{{{The attnlab developers}}}},
  version = {{{__version__}}},
  year    = {{2026}},
}}"""

"""What is seen: the labelled schema, measures, files."""

from attnlab.results import measures
from attnlab.results.atomic import atomic_path
from attnlab.results.files import DamagedFile, NotAResult, load, save, verify
from attnlab.results.provenance import provenance

__all__ = [
    "DamagedFile",
    "NotAResult",
    "atomic_path",
    "load",
    "measures",
    "provenance",
    "save",
    "verify",
]

"""What is learnt from: sequence classes, named constructions, exact sampling, files."""

from attnlab.data.class_files import read_classes, write_classes
from attnlab.data.classes import ABSENT, COMMON, DISTINCT, SequenceClasses
from attnlab.data.constructions import (
    family,
    local_common,
    random,
    single_common,
    symmetric,
    zipf,
)
from attnlab.data.presets import from_preset, presets
from attnlab.data.presets import resolve as classes_from
from attnlab.data.sampling import class_table, count_sampler, draw_classes, token_sampler

__all__ = [
    "ABSENT",
    "COMMON",
    "DISTINCT",
    "SequenceClasses",
    "class_table",
    "classes_from",
    "count_sampler",
    "draw_classes",
    "family",
    "from_preset",
    "local_common",
    "presets",
    "random",
    "read_classes",
    "single_common",
    "symmetric",
    "token_sampler",
    "write_classes",
    "zipf",
]

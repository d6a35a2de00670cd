"""What is learnt from: sequence classes, named constructions, exact sampling, files."""

from attnlab.data.class_files import read_classes, write_classes
from attnlab.data.classes import ABSENT, COMMON, DISTINCT, SequenceClasses
from attnlab.data.constructions import (
    LatentLayers,
    LatentTree,
    family,
    hblt,
    hierarchy,
    joma_toy,
    local_common,
    random,
    single_common,
    symmetric,
    syn_medium,
    syn_small,
    zipf,
)
from attnlab.data.presets import PRESETS, from_preset
from attnlab.data.presets import resolve as classes_from
from attnlab.data.sampling import class_table, count_sampler, draw_classes, token_sampler

__all__ = [
    "ABSENT",
    "COMMON",
    "DISTINCT",
    "PRESETS",
    "LatentLayers",
    "LatentTree",
    "SequenceClasses",
    "class_table",
    "classes_from",
    "count_sampler",
    "draw_classes",
    "family",
    "from_preset",
    "hblt",
    "hierarchy",
    "joma_toy",
    "local_common",
    "random",
    "read_classes",
    "single_common",
    "symmetric",
    "syn_medium",
    "syn_small",
    "token_sampler",
    "write_classes",
    "zipf",
]

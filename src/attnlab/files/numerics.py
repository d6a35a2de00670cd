"""Versions of the numbers that each folder makes, by which results that took long are known again.

A sweep's groups and kept trainings are named after these and not after the code, so that better
words or a quicker program leave them where they are. Whoever changes what comes out raises the
version of the folder: `tests/test_numerics.py` has golden numbers of each and says so. A change of
the last digits, within the tolerances there, is none.
"""

from __future__ import annotations

from attnlab.files.provenance import versions

# With the first line of a version goes what is different since.
NUMERICS = {
    "data": 1,  # what classes are drawn, and which sequences of them
    "measures": 2,  # entropy, speed, snap and the others; 2: a snap is over equal spans
    "dynamics": 1,  # gradients, engines, models, optimisers
    "theory": 1,  # formulas
    "sweep": 2,  # what runs are summed up by; 2: the snap's new definition
    "text": 1,  # corpora, transformers, their training, classes of a text
}
# Other versions of these may round differently, or draw other random numbers.
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "optax", "diffrax")


def numerics(*folders: str) -> dict[str, int | str]:
    """All that decides the numbers of these folders apart from what they are given."""
    installed = versions()  # a bare accelerator machine has not all of the libraries
    libraries = {name: installed[name] for name in LIBRARIES if name in installed}
    return {**{folder: NUMERICS[folder] for folder in folders}, **libraries}

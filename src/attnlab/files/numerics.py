"""Versions of the numerics of each folder, by which stored results are found again.

Groups of a sweep and checkpoints are named after these versions and not after the code, so a new
docstring or a faster program does not invalidate them. Raise the version of a folder when its
numbers change: `tests/test_numerics.py` has golden numbers of each. A change of the last digits,
within the tolerances there, does not count.
"""

from __future__ import annotations

from attnlab.files.provenance import versions

# Say after a version what changed.
NUMERICS = {
    "tasks": 1,  # the classes and corpora there are, and the sequences that are drawn
    "models": 1,  # starts and outputs of models
    "simulation": 1,  # gradients, optimizers, flows, and what is recorded
    "measures": 2,  # entropy, speed, snap and the others; 2: a snap is over equal spans
    "theory": 1,  # formulas
    "sweep": 2,  # summary numbers of runs; 2: the snap's new definition
}
# Other versions of these may round differently, or draw other random numbers.
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "optax", "diffrax")


def numerics(*folders: str) -> dict[str, int | str]:
    """Return what decides the numbers of these folders, apart from their input."""
    installed = versions()  # a bare accelerator machine has not all of the libraries
    libraries = {name: installed[name] for name in LIBRARIES if name in installed}
    return {**{folder: NUMERICS[folder] for folder in folders}, **libraries}

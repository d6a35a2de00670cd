"""How many units of an MLP do the work, of numpy, JAX or torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.measures import maps
from attnlab.measures.arrays import Array, alike, exactly, namespace, precise

if TYPE_CHECKING:
    from jaxtyping import Float

UNITS_MASS = 0.95


def units_for(
    activations: Float[Array, "*rows unit"], mass: float = UNITS_MASS
) -> tuple[float, float]:
    """How many hidden units of an MLP hold this much of a token's |activation|: number and share.

    The mean over rows (Liu et al. 2023, Deja Vu). Activations are those after the nonlinearity.
    Rows in which nothing is active are left out.
    """
    mean = float(units_of(activations.reshape(-1, activations.shape[-1]), mass))
    return mean, mean / activations.shape[-1]


def units_of(
    activations: Float[Array, "*many row unit"], mass: float = UNITS_MASS
) -> Float[Array, "*many"]:
    """The numbers of `units_for`, where the activations are; NaN where nothing is active."""
    xp = namespace(activations)
    with exactly(activations):
        strength = xp.abs(precise(activations))
        active = alike(strength, xp.sum(strength, axis=-1) > 0)
        number = alike(strength, maps.keys_for(strength, (mass,))[..., 0])
        rows = xp.sum(active, axis=-1)
        mean = xp.sum(number * active, axis=-1) / xp.where(rows > 0, rows, 1.0)
        return xp.where(rows > 0, mean, xp.nan)

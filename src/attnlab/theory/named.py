"""Theories by name, as the papers on the shelf offer them."""

from __future__ import annotations

import warnings

from attnlab.files.errors import InputError
from attnlab.shelf import offered, reference
from attnlab.simulation.simulation import Simulation
from attnlab.theory.theory import Theory


def as_theory(theory: str | Theory) -> Theory:
    """Return the theory, looking it up on the shelf if a name is given.

    Parameters
    ----------
    theory : str or Theory
        The name of a theory that a paper offers, or a theory.

    Returns
    -------
    Theory
        The theory.

    Examples
    --------
    >>> from attnlab.theory import as_theory
    >>> as_theory("sgd").name
    'sgd'
    """
    if isinstance(theory, Theory):
        if not isinstance(getattr(theory, "name", None), str):
            raise InputError(f"theory: {type(theory).__name__} has no name; give it one, a text")
        return theory
    if not isinstance(theory, str):
        raise InputError(f"theory: expected a name or a Theory object, got {theory!r}")
    made: Theory = reference("theories", theory).load()()
    return made


def theories_about(run: Simulation) -> tuple[Theory, ...]:
    """Return the theories of the shelf that cover a run, in the shelf's order.

    Raises the first refusal where there is none.

    Parameters
    ----------
    run : Simulation
        The run.

    Returns
    -------
    tuple of Theory
        One at least.

    Examples
    --------
    >>> from attnlab import Flow, Simulation
    >>> from attnlab.theory import theories_about
    >>> [theory.name for theory in theories_about(Simulation("syn-small", motion=Flow()))]
    ['printed', 'corrected', 'sgd']
    """
    covering, refused = [], []
    for name in offered("theories"):
        try:
            theory = as_theory(name)
        except InputError as problem:  # a broken paper takes no other theory down
            warnings.warn(f"theory {name!r} is left out: {problem}", stacklevel=2)
            continue
        try:
            theory.check(run)
        except InputError as problem:
            refused.append(problem)
        else:
            covering.append(theory)
    if refused and not covering:
        raise refused[0]
    return tuple(covering)

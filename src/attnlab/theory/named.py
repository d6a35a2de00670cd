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


def usual_theory(run: Simulation) -> Theory:
    """Return the theory that predicts a run unless another is named: the last that covers it.

    Each level of a paper assumes less than the one before, and so errs less where assumptions fail.
    Papers that come with attnlab are asked first, so that adding a paper changes no prediction.

    Parameters
    ----------
    run : Simulation
        The run.

    Returns
    -------
    Theory
        The theory.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab.theory import usual_theory
    >>> usual_theory(attnlab.Simulation("syn-small")).name
    'sgd'
    """
    covering = theories_about(run)
    ours = [theory for theory in covering if type(theory).__module__.startswith("attnlab.")]
    return (ours or covering)[-1]


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

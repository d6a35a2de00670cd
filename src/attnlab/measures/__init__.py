"""Measures of labelled results: one definition for simulation, prediction and observation.

`maps`, `positions` and `received` measure attention weights (..., query, key) of numpy, JAX or
torch; the functions here measure labelled datasets with them.

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Tasks: sequence classes, text, in-context Markov chains, and any class of a user's own.

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

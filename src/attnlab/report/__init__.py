"""Experiments and verdicts as files and as one self-contained page.

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

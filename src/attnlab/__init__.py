"""attnlab: a test bench for theories of how attention learns.

    import attnlab

    result = attnlab.simulate("syn-small")
    result.attention.isel(seed=0, step=-1)

`__init__.pyi` lists the public names. They are loaded when they are first used, so that importing
the package stays quick and needs no more than what is used.
"""

import lazy_loader

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The same measurements on anybody's PyTorch model, while it trains or as it is.

    import attnlab

    with attnlab.observe(model, probe=ids, every=100) as observer:
        train(model)
    observer.result().entropy                     # over (step, layer, head)

`attnlab.observing.record` measures queries and keys in code that calls neither torch's nor
transformers' attention. The extra `observe` installs torch and transformers. Names are loaded when
they are first used.
"""

from importlib import import_module
from typing import Any

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_load = __getattr__


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ("torch", "transformers"):
            raise
        raise import_module("attnlab.files.errors").InputError(
            f"observe: needs the extra 'observe' ({problem.name} is not installed); "
            "pip install 'attnlab[observe]'"
        ) from None

"""The same measurements on anybody's PyTorch model, while it trains or as it is.

    import attnlab

    with attnlab.observe(model, probe=ids, every=100) as observer:
        train(model)
    observer.result().entropy                     # over (step, layer, head)

`attnlab.observing.record` measures queries and keys in code that calls neither torch's nor
transformers' attention. The extra `observe` installs torch and transformers. Names are loaded when
they are first used.

Files in reading order: `probe` (the batch), `call` (one attention call), `capture` and `sources`
(the calls of a model), `query_plan`, `statistics` and `kv_cache` (`measure_call` and the function
that computes attention weights, `measure_heads`), `layer_statistics` (labels and means; the table
of all statistics is statistics.csv), `weights`, `snapshot` (all layers in one forward pass),
`snap`, `roles` and `history` (over steps), `training`, `alerts`, `trackers` and `observer`. Models
in files: `model_files`, `checkpoints`, `trajectory`. Results: `words`, `report_page`, `comparison`.
Beside observing: `interventions` and `head_maps`, which run a model on request.
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
        errors = import_module("attnlab.files.errors")
        raise errors.not_installed("observe", problem.name, extra="observe") from None

"""The same measurements on anybody's PyTorch model, while it trains or as it is.

    import attnlab

    with attnlab.observe(model, probe=ids, every=100) as observer:
        train(model)
    observer.result().entropy                     # over (step, layer, head)

`attnlab.observe` is this folder and, called, the function `observe` of it. Of code that calls
neither torch's nor transformers' attention, `attnlab.observe.record` measures queries and keys. The
extra `observe` (torch, transformers) has what is needed; names are loaded when they are first used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

_HOMES = {
    "AttentionCall": "call",
    "Checkpoint": "checkpoints",
    "Expectation": "expectation",
    "Fault": "lint",
    "Lint": "lint",
    "Observer": "observer",
    "classes": "expectation",
    "expectation": "expectation",
    "find_checkpoints": "checkpoints",
    "in_words": "words",
    "lint": "lint",
    "mlflow": "trackers",
    "observe": "observer",
    "observe_checkpoints": "trajectory",
    "observe_model": "trajectory",
    "record": "record",
    "report": "report",
    "tensorboard": "trackers",
    "terminal": "terminal",
    "wandb": "trackers",
}

__all__ = [
    "AttentionCall",
    "Checkpoint",
    "Expectation",
    "Fault",
    "Lint",
    "Observer",
    "classes",
    "expectation",
    "find_checkpoints",
    "in_words",
    "lint",
    "mlflow",
    "observe",
    "observe_checkpoints",
    "observe_model",
    "record",
    "report",
    "tensorboard",
    "terminal",
    "wandb",
]

if TYPE_CHECKING:
    from attnlab.observe.call import AttentionCall
    from attnlab.observe.checkpoints import Checkpoint, find_checkpoints
    from attnlab.observe.expectation import Expectation, classes, expectation
    from attnlab.observe.lint import Fault, Lint, lint
    from attnlab.observe.observer import Observer, observe
    from attnlab.observe.record import record
    from attnlab.observe.report import report
    from attnlab.observe.terminal import terminal
    from attnlab.observe.trackers import mlflow, tensorboard, wandb
    from attnlab.observe.trajectory import observe_checkpoints, observe_model
    from attnlab.observe.words import in_words


def __dir__() -> list[str]:
    return __all__


def _home(name: str) -> ModuleType:
    from attnlab.files.errors import InputError

    try:
        return import_module(f"attnlab.observe.{_HOMES[name]}")
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ("torch", "transformers"):
            raise
        raise InputError(
            f"observe: needs the extra 'observe' ({problem.name} is not installed); "
            "pip install 'attnlab[observe]'"
        ) from None


class _Callable(ModuleType):
    """A submodule may have the name of a function in it (`lint`, `record`): the function is meant,
    whichever of the two was loaded first."""

    def __getattribute__(self, name: str) -> Any:
        if name in _HOMES:
            return getattr(_home(name), name)
        return super().__getattribute__(name)

    def __call__(self, model: Any, **options: Any) -> Any:
        return _home("observe").observe(model, **options)


sys.modules[__name__].__class__ = _Callable

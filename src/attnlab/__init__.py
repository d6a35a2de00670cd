"""attnlab: a laboratory for the training dynamics of attention.

    import attnlab

    result = attnlab.simulate("syn-small", eta_y=1.0, eta_z=1.0, steps=1000)
    result.attention.isel(seed=0, step=-1)

Names are loaded when they are first used, so that importing the package stays quick and needs
no more than what is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "SequenceClasses": "data",
    "classes_from": "data",
    "Diverged": "dynamics",
    "Embedded": "dynamics",
    "Flow": "dynamics",
    "Limit": "dynamics",
    "Optimizer": "dynamics",
    "Pairwise": "dynamics",
    "Sampled": "dynamics",
    "Save": "dynamics",
    "simulate": "dynamics",
    "load": "results",
    "save": "results",
}
_FOLDERS = ("audit", "data", "dynamics", "figures", "report", "results", "theory")

__all__ = [
    "Diverged",
    "Embedded",
    "Flow",
    "Limit",
    "Optimizer",
    "Pairwise",
    "Sampled",
    "Save",
    "SequenceClasses",
    "__version__",
    "audit",
    "classes_from",
    "data",
    "dynamics",
    "figures",
    "load",
    "report",
    "results",
    "save",
    "simulate",
    "theory",
]

if TYPE_CHECKING:
    from attnlab import audit, data, dynamics, figures, report, results, theory
    from attnlab.data import SequenceClasses, classes_from
    from attnlab.dynamics import (
        Diverged,
        Embedded,
        Flow,
        Limit,
        Optimizer,
        Pairwise,
        Sampled,
        Save,
        simulate,
    )
    from attnlab.results import load, save


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"attnlab.{_HOMES[name]}"), name)
    if name in _FOLDERS:
        return import_module(f"attnlab.{name}")
    raise AttributeError(f"module 'attnlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

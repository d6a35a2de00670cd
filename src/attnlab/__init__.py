"""attnlab: a laboratory for the training dynamics of attention.

    import attnlab

    result = attnlab.simulate("syn-small")
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
    "AlibiPosition": "dynamics",
    "Diverged": "dynamics",
    "Embedded": "dynamics",
    "Engine": "dynamics",
    "Extended": "dynamics",
    "FixedPosition": "dynamics",
    "Flow": "dynamics",
    "Interrupted": "dynamics",
    "Joint": "dynamics",
    "LearnedPosition": "dynamics",
    "Limit": "dynamics",
    "Model": "dynamics",
    "Optimizer": "dynamics",
    "Pairwise": "dynamics",
    "Sampled": "dynamics",
    "Save": "dynamics",
    "Simulation": "dynamics",
    "simulate": "dynamics",
    "Theory": "prediction",
    "predict": "prediction",
    "play": "playground",
    "load": "files.netcdf",
    "save": "files.netcdf",
    "Training": "text",
    "train": "text",
    "Local": "sweep",
    "Ray": "sweep",
    "open_sweep": "sweep",
}
_FOLDERS = (
    "audit", "data", "dynamics", "experiments", "measures", "observe", "plots", "report",
    "sweep", "text", "theory",
)  # fmt: skip

__all__ = [
    "AlibiPosition",
    "Diverged",
    "Embedded",
    "Engine",
    "Extended",
    "FixedPosition",
    "Flow",
    "Interrupted",
    "Joint",
    "LearnedPosition",
    "Limit",
    "Local",
    "Model",
    "Optimizer",
    "Pairwise",
    "Ray",
    "Sampled",
    "Save",
    "SequenceClasses",
    "Simulation",
    "Theory",
    "Training",
    "__version__",
    "audit",
    "classes_from",
    "data",
    "dynamics",
    "experiments",
    "load",
    "measures",
    "observe",
    "open_sweep",
    "play",
    "plots",
    "predict",
    "report",
    "save",
    "simulate",
    "sweep",
    "text",
    "theory",
    "train",
]

if TYPE_CHECKING:
    from attnlab import (
        data,
        dynamics,
        experiments,
        measures,
        plots,
        report,
        text,
        theory,
    )
    from attnlab.audit.audit import audit
    from attnlab.data import SequenceClasses, classes_from
    from attnlab.dynamics import (
        AlibiPosition,
        Diverged,
        Embedded,
        Engine,
        Extended,
        FixedPosition,
        Flow,
        Interrupted,
        Joint,
        LearnedPosition,
        Limit,
        Model,
        Optimizer,
        Pairwise,
        Sampled,
        Save,
        Simulation,
        simulate,
    )
    from attnlab.files.netcdf import load, save
    from attnlab.observe.observer import observe
    from attnlab.playground import play
    from attnlab.prediction import Theory
    from attnlab.prediction.predict import predict
    from attnlab.sweep import Local, Ray, open_sweep
    from attnlab.sweep.sweep import sweep
    from attnlab.text import Training
    from attnlab.text.train import train


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"attnlab.{_HOMES[name]}"), name)
    if name in _FOLDERS:
        return import_module(f"attnlab.{name}")
    raise AttributeError(f"module 'attnlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Code: the Python and the command line that give the numbers on the screen."""

from __future__ import annotations

import shlex

from attnlab.data.class_files import format_classes
from attnlab.dynamics import Pairwise
from attnlab.playground.setting import Setting

FILE = "classes.yaml"


def python(setting: Setting) -> str:
    """A script that simulates a setting."""
    given = setting.arguments()
    if given["model"] == Pairwise():
        del given["model"]
    words = {
        name: f"attnlab.{value!r}" if name in ("save", "model") else repr(value)
        for name, value in given.items()
    }
    words["save"] = f"attnlab.Save(geometric={given['save'].geometric})"
    arguments = "".join(f"    {name}={word},\n" for name, word in words.items())
    return (
        "import attnlab\n\n"
        "result = attnlab.simulate(\n"
        f"    {_classes(setting)!r},\n"
        f"    attnlab.{setting.engine!r},\n"
        f"{arguments})\n"
        'print(result["attention"].isel(seed=0).isel({result["loss"].dims[-1]: -1}))\n'
    )


def command_line(setting: Setting) -> str:
    """The `attnlab simulate` that writes the same run to a file."""
    given = setting.arguments()
    options = {
        "engine": type(setting.engine).__name__.lower(),
        "eta-y": repr(setting.eta_y),
        "eta-z": repr(setting.eta_z),
        "steps": f"{setting.steps:g}" if setting.flow else str(int(setting.steps)),
        "length": setting.length,
        "batch-size": setting.batch_size,
        "optimizer": setting.optimizer,
        "momentum": repr(setting.momentum),
        "init": setting.init,
        "seed": setting.seed,
        "geometric": given["save"].geometric,
        "heads": setting.heads if setting.heads > 1 else None,
        "out": "run.nc",
    }
    words = ["attnlab", "simulate", _classes(setting)]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words + ["--residual"] * setting.residual)


def classes_file(setting: Setting) -> str:
    """The file that both name, where the classes are one's own; else nothing."""
    if setting.written is None:
        return ""
    return format_classes(setting.sequence_classes, suffix=".yaml")


def _classes(setting: Setting) -> str:
    return setting.sequence_classes.origin if setting.written is None else FILE

"""The names that the rest of the laboratory relies on, and what theory may import."""

import ast
import inspect
from pathlib import Path

import attnlab.theory as theory

KEYWORDS = {
    "h_star": {"M", "eta_y"},
    "h": {"M", "eta_y"},
    "gamma": {"K", "M", "eta_y"},
    "gamma_peak": {"K", "M", "eta_y"},
    "omega_0": set(),
    "omega_1": set(),
    "transition_times": {"K", "M", "eta_y"},
    "correlation": {"psi"},
    "e_prime": {"form"},
    "assumption_2": {"M"},
    "beta": {"M", "form", "theta", "sigma"},
    "iota": {"M", "theta", "sigma"},
    "xi": {"M", "form", "theta", "sigma"},
    "attention_velocity": {"psi", "M", "weight"},
    "attention_flow": {"psi", "M", "eta_y", "eta_z"},
    "relative_gain": {"reference"},
    "growth_factor": set(),
    "growth_bounds": set(),
    "growth_bound": {"K", "M", "eta_y", "eta_z", "C0", "form"},
    "snapping": {"K", "M", "eta_y", "eta_z", "C0", "form"},
}


def test_names_and_keyword_only_arguments():
    for name, expected in KEYWORDS.items():
        parameters = inspect.signature(getattr(theory, name)).parameters.values()
        keyword = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        assert expected <= keyword, name


def test_exports_are_complete_documented_and_not_shadowing_modules():
    folder = Path(theory.__file__).parent
    for name in theory.__all__:
        assert getattr(theory, name).__doc__, name
        assert not (folder / f"{name}.py").exists(), name


def test_theory_imports_only_itself_numpy_and_scipy():
    numbers, language = {"numpy", "scipy", "math"}, {"__future__", "collections", "typing"}
    allowed = {*numbers, *language, "dataclasses", "functools"}
    for path in Path(theory.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.startswith(("attnlab.theory", "attnlab.files.errors")) or (
                    name.split(".")[0] in allowed
                ), path

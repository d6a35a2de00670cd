"""The folders import one way only, and importing leaves global state alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import attnlab

SOURCE = Path(attnlab.__file__).parent
# A folder imports only from those before it.
ORDER = [
    "files",
    "shelf",
    "formulas",
    "measures",
    "tasks",
    "models",
    "simulation",
    "theory",
    "auditing",
    "sweeping",
    "plots",
    "experiments",
    "papers",
    "observing",
    "report",
    "authoring",
    "playground",
    "cli",
]
# formulas stand on numpy alone, so that agreement with the simulator is evidence
FORBIDDEN = {"formulas": {"shelf"}}


def imported_folders(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("attnlab.")}
    return found & set(ORDER)


def test_every_folder_has_a_place():
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ORDER)


def test_a_folder_imports_only_from_those_above_it():
    for folder in ORDER:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            imported = imported_folders(path) - {folder}
            later = set(ORDER[ORDER.index(folder) :])
            assert not imported & later, f"{path} imports {imported & later}"
            assert not imported & FORBIDDEN.get(folder, set()), path


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_light_and_changes_nothing():
    out = run(
        "import sys, attnlab; heavy = {'jax', 'matplotlib', 'scipy', 'torch', 'diffrax', 'xarray'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert out == "[]"
    out = run(
        "import jax; before = dict(jax.config.values);"
        "import attnlab.simulation.trainer, attnlab.tasks.text.task, attnlab.measures;"
        "import attnlab.models.transformer, attnlab.theory;"
        "after = dict(jax.config.values); print(before == after);"
        # `import scipy` loads each part when it is used; all of them take as long as JAX
        "import sys, attnlab.auditing; print({'scipy.integrate', 'scipy.stats'} & set(sys.modules))"
    )
    assert out.split("\n") == ["True", "set()"]


@pytest.mark.slow
def test_simulating_needs_only_jax_numpy_optax_xarray_and_yaml():
    """A bare accelerator machine has those and little more."""
    out = run(
        "import sys\n"
        "for name in ('scipy.stats', 'diffrax', 'matplotlib', 'h5netcdf', 'h5py',"
        " 'typer', 'rich', 'jinja2', 'torch'):\n"
        "    sys.modules[name] = None\n"
        "import attnlab\n"
        "result = attnlab.simulate('syn-small', length=8, batch_size=4, steps=2)\n"
        "print(result.sizes['step'])"
    )
    assert out == "3"


def test_every_public_name_is_there():
    for name in attnlab.__all__:
        assert getattr(attnlab, name) is not None


def test_what_kind_a_value_is_matters_in_its_own_file_alone():
    """Elsewhere one of a user's would be left out."""
    kinds = "Pairwise|Embedded|Extended|Transformer|Steps|Flow|(Learned|Alibi|Fixed)Position"
    asked = re.compile(rf"isinstance\([^)]*\b({kinds})\b")
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "models":
            assert not asked.search(path.read_text()), path


def test_there_is_one_training_loop():
    """Steps and flow times pass in two files; elsewhere compiled loops do other work."""
    loops = re.compile(r"\b(fori_loop|while_loop|scan)\(")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if loops.search(path.read_text())
    }
    assert found == {
        "simulation/program.py",  # optimizer steps
        "simulation/flow.py",  # steps of the flow's solver
        "models/transformer_math.py",  # layers
        "papers/causal_structure/task.py",  # tokens of a sequence, drawn in order
        "measures/arrays.py",  # iterations of a measure, such as a rank
    }


@pytest.mark.slow
def test_making_a_value_or_predicting_needs_no_jax():
    out = run(
        "import sys, attnlab\n"
        "run = attnlab.Simulation('syn-small', attnlab.Extended(residual=True), seeds=3)\n"
        "assert attnlab.Simulation.from_document(run.to_document()) == run\n"
        "flow = attnlab.Simulation('syn-small', motion=attnlab.Flow(100.0))\n"
        "attnlab.predict(flow, theory='corrected')\n"
        "print('jax' in sys.modules)"
    )
    assert out == "False"

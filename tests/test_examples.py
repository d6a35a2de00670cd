"""Every example runs, in a folder of its own, and says what it found."""

from pathlib import Path

import pytest
from commands import script  # noqa: F401

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FEW_STEPS = {"observe_training": ["4"], "observe_trainer": ["4"]}  # of trainings that take longer
GUIDES = "".join(path.read_text() for path in (ROOT / "docs/guides").glob("own_*.md"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path, script, tmp_path):  # noqa: F811
    assert len(path.read_text().splitlines()) <= 60
    if f"$ ./lab python examples/{path.name}" in GUIDES:  # tests/docs runs it
        return
    if path.stem == "observe_trainer":
        pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    assert script(path, *FEW_STEPS.get(path.stem, []), cwd=tmp_path).strip()

"""Every example runs, in a folder of its own, and says what it found."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FEW_STEPS = {"observe_training": ["4"], "observe_trainer": ["4"]}  # of trainings that take longer
GUIDES = "".join(path.read_text() for path in (ROOT / "docs/guides").glob("own_*.md"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path, tmp_path):
    assert len(path.read_text().splitlines()) <= 60
    if f"$ ./lab python examples/{path.name}" in GUIDES:  # tests/docs runs it
        return
    if path.stem == "observe_trainer":
        pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    done = subprocess.run(
        [sys.executable, path, *FEW_STEPS.get(path.stem, [])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()

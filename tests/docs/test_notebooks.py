"""The code of the notebooks runs, in this process, where JAX and its programs are awake."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.md"))
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAGIC = re.compile(r"^%.*$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = CELL.findall(path.read_text(encoding="utf-8"))
    assert cells
    names = {"__name__": "__main__"}
    for cell in cells:
        exec(compile(MAGIC.sub("", cell), str(path), "exec"), names)

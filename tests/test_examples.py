"""Every example runs, in a folder of its own, and says what it found."""

from pathlib import Path

import pytest
from commands import script  # noqa: F401

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CHAINS = ROOT / "examples/observe_chains.py"
FEW_STEPS = {"observe_training": ["4"], "observe_trainer": ["4"]}  # of trainings that take longer
GUIDES = "".join(path.read_text() for path in (ROOT / "docs/guides").glob("own_*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_is_short(path, script, tmp_path):  # noqa: F811
    assert len(path.read_text().splitlines()) <= 60
    if f"$ ./lab python examples/{path.name}" in GUIDES or path == CHAINS:  # other tests run it
        return
    if path.stem == "observe_trainer":
        pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    assert script(path, *FEW_STEPS.get(path.stem, []), cwd=tmp_path).strip()


@pytest.mark.slow
@pytest.mark.torch
def test_a_pytorch_model_passes_the_stages_of_statistical_induction(script, tmp_path):  # noqa: F811
    """Uniform, unigram, bigram; layer 1 looks for earlier bigrams before layer 0 looks back."""
    rows = [line.split() for line in script(CHAINS, cwd=tmp_path).splitlines()[1:]]
    nearest = [row[1] for row in rows]
    stages = ["uniform", "unigram", "bigram"]
    assert sorted(nearest, key=stages.index) == nearest and set(nearest) == set(stages)
    previous, induction = ([float(row[column]) for row in rows] for column in (2, 3))
    assert previous[-1] > 0.3 and induction[-1] > 0.35
    half_way = [sum(x < of[-1] / 2 for x in of) for of in (induction, previous)]
    assert half_way[0] < half_way[1]

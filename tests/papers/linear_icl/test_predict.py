"""Theories of linear attention beside training, and runs that they refuse."""

import pytest

from attnlab import predict, simulate
from attnlab.files.errors import InputError
from attnlab.papers.linear_icl.model import LinearAttention
from attnlab.papers.linear_icl.runs import descent, flow, geometric, proportional
from attnlab.papers.linear_icl.task import InContextRegression

TASK, WHITE = proportional((3, 2)), proportional((1, 1))


@pytest.mark.parametrize(
    ("model", "levels"),
    [
        (LinearAttention(3, 1, 0.03), {"icl-staircase": TASK}),
        (LinearAttention(3, std=1e-4), {"icl-one-head": TASK, "icl-white": WHITE}),
    ],
)
def test_each_level_comes_nearer(model, levels):
    """Two spectra run in one program, and each as the theories of it alone say."""
    at = geometric(1.0, 3000.0, 100)
    both = simulate(flow([TASK, WHITE], model, at, seeds=2), progress=False)["learned"]
    for i, task in enumerate((TASK, WHITE)):
        learned, alone = both.isel(setting=i), flow(task, model, at, seeds=2)
        still = float(abs(learned - learned.isel(time=0)).mean())
        own = {name: 0.1 * still for name, of in levels.items() if of == task}
        for level, most in {**own, "icl-population": 1e-5}.items():
            assert float(abs(predict(alone, theory=level)["learned"] - learned).mean()) < most


@pytest.mark.parametrize(
    ("run", "name", "field"),
    [
        (flow(TASK, LinearAttention(2), [0.0, 1.0], seeds=1), "icl-white", "task.spectrum"),
        (flow(TASK, LinearAttention(2), [0.0, 1.0], seeds=1), "icl-staircase", "model.rank"),
        (flow(TASK, LinearAttention(2, 1), [0.0, 1.0], seeds=1), "icl-one-head", "model.rank"),
        (
            descent(
                InContextRegression((0.5, 0.5), sequences=50, fresh=0.5),
                std=0.01,
                rate=0.01,
                steps=2,
                every=1,
                seeds=1,
            ),
            "icl-population",
            "task.fresh",
        ),
    ],
)
def test_other_runs_are_refused(run, name, field):
    with pytest.raises(InputError, match=f"^{field}: "):
        predict(run, theory=name)

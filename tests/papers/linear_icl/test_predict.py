"""Theories of linear attention beside training, and runs that they refuse."""

import pytest

from attnlab import predict, simulate
from attnlab.files.errors import InputError
from attnlab.papers.linear_icl.model import LinearAttention
from attnlab.papers.linear_icl.runs import descent, flow, geometric
from attnlab.papers.linear_icl.task import InContextRegression

TASK = InContextRegression((0.6, 0.4), sequences=50)
WHITE = InContextRegression((0.5, 0.5), sequences=50)


@pytest.mark.parametrize(
    ("task", "model", "levels"),
    [
        (TASK, LinearAttention(3, 1, 0.03), ("icl-staircase", "icl-population")),
        (WHITE, LinearAttention(3, std=1e-4), ("icl-white", "icl-one-head", "icl-population")),
    ],
)
def test_each_level_comes_nearer(task, model, levels):
    run = flow(task, model, geometric(1.0, 3000.0, 100), seeds=2)
    learned = simulate(run, progress=False)["learned"]
    still = float(abs(learned - learned.isel(time=0)).mean())
    errors = [float(abs(predict(run, theory=of)["learned"] - learned).mean()) for of in levels]
    assert errors[0] < 0.1 * still
    assert errors[-1] < 1e-5


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


def test_spectra_run_side_by_side_as_they_do_alone():
    model, at = LinearAttention(2, 1, 0.1), [0.0, 20.0, 100.0]
    both = simulate(flow(TASK, model, at, seeds=2, beside=(WHITE,)), progress=False)
    alone = simulate(flow(WHITE, model, at, seeds=2), progress=False)
    assert float(abs(both["learned"].isel(setting=1) - alone["learned"]).max()) < 1e-6

"""Training runs of one layer, and what was measured of them: `measured/one_layer.csv`.

    python -m attnlab.papers.active_dormant.runs softmax relu bare

trains ten seeds of each (four minutes of one core in all) and writes the file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab.simulation import Batches, Record, Simulation, Steps
from attnlab.simulation.motion import Optimizer

from .model import BackcopyTransformer
from .task import BigramBackcopy

MEASURED = Path(__file__).parent / "measured" / "one_layer.csv"
COLUMNS = (
    "sink_at_others",
    "sink_at_triggers",
    "previous_at_triggers",
    "on_triggers_at_others",
    "drain",
    "peak",
    "first_value",
    "copy_risk",
    "bigram_kl",
    "sink_logit",
    "sink_logit_spread",
)


def one_layer(
    task: BigramBackcopy | None = None,
    model: BackcopyTransformer | None = None,
    *,
    steps: int = 800,
    at: Sequence[int] = (0, 50, 100, 200, 500, 800),
    seeds: int = 10,
    probe: int = 96,
) -> Simulation:
    """Return a run with the released code's AdamW at ten times its learning rate."""
    return Simulation(
        task or BigramBackcopy(),
        model or BackcopyTransformer(),
        motion=Steps(steps, Optimizer("adamw", beta_2=0.99, weight_decay=1e-4)),
        gradient=Batches(48),
        learning_rate=3e-3,
        seeds=seeds,
        record=Record(at=tuple(at), probe=probe),
    )


RUNS = {
    "softmax": one_layer(steps=1500, at=(0, 50, 100, 200, 500, 800, 1500)),
    "relu": one_layer(model=BackcopyTransformer(attention="relu")),
    "bare": one_layer(BigramBackcopy(start_token=False)),
}


def write(names: Sequence[str]) -> None:
    """Train these runs and write a row for each run, seed and step."""
    from attnlab.simulation import simulate

    lines = [",".join(("run", "seed", "step", *COLUMNS))]
    for name in names:
        result = simulate(RUNS[name], progress=False)
        for seed in result["seed"].values:
            for step in result["step"].values:
                of = result.sel(seed=seed, step=step)
                numbers = (f"{float(of[column].squeeze()):.5g}" for column in COLUMNS)
                lines.append(",".join((name, str(seed), str(step), *numbers)))
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(sys.argv[1:])

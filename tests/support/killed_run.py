"""Runs of several groups in two threads; as a script, one that is killed after a checkpoint."""

import os
import signal
import sys

from attnlab import Batches, MarkovChains, Record, Sequences, Simulation, Steps, Transformer
from attnlab.simulation import groups, trainer

RUNS = {
    "transformer": Simulation(
        MarkovChains(2, 8),
        Transformer(layers=1, dim=4),
        motion=Steps(24, "adam"),
        gradient=Batches(4),
        learning_rate=[0.1, 0.5],
        seeds=3,
        record=Record(every=1),
    ),
    "sequence classes": Simulation(
        Sequences("syn-small", length=16),
        gradient=Batches(4),
        eta_y=[0.5, 1.0],
        seeds=3,
        motion=Steps(24),
        record=Record(every=1),
    ),
}
RUNS_AT_ONCE = 2  # of six


def main(name: str, folder: str, writes: int) -> None:
    """Run until that many checkpoints are written, and die while other threads go on."""
    groups.RUNS_AT_ONCE["cpu"] = RUNS_AT_ONCE
    trainer.CHECKPOINT_SHARE = 1e9  # a checkpoint after each call
    write, written = trainer.write_checkpoint, []

    def kill(*of, **more) -> None:
        write(*of, **more)
        written.append(1)
        if len(written) == writes:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.write_checkpoint = kill
    trainer.simulate(RUNS[name], out=folder, checkpoint_seconds=0.0, progress=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

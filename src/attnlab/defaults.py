"""What a run is where nothing else is said: the paper's protocol for Syn-Small (Figs. 4 and 5).

Read by Python, the command line, recipes and the playground alike.
"""

from typing import Final

ENGINE: Final = "sampled"
LENGTH = 128  # T, query included
BATCH_SIZE = 128
ETA_Y, ETA_Z = 1.0, 1.0
STEPS = 100
MOMENTUM = 0.9  # of sgd that takes steps; the flow has none

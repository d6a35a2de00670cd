"""Default settings of a run, for Python, the command line, recipes and the playground.

They are the protocol of "Scan and Snap" for Syn-Small (Figs. 4 and 5).
"""

LENGTH = 128  # T, query included
BATCH_SIZE = 128
ETA_Y, ETA_Z = 1.0, 1.0
STEPS = 100
MOMENTUM = 0.9  # of sgd that takes steps; the flow has none

"""Exit codes that several verbs have."""

FAULTS = 1  # of checkpoints, that a lint found
BAD_INPUT = 2
DIVERGED = 3  # or could not be followed; what there is is kept
INTERRUPTED = 130

"""Exit codes of all verbs; 0 is success, and a traceback (our fault) ends with 1."""

NOT_AS_RECORDED = 1  # reproduce, study, audit: a number or a verdict is not the one on record
STOPPED = 1  # sweep, reproduce, study: it could not go on; make room on the disk, and run it again
FAULTS = 1  # observe lint: checkpoints have faults
BAD_INPUT = 2  # any verb: one message that names the field and the remedy; nothing was written
DIVERGED = 3  # numbers left the finite range, or could not be followed; what there is is kept
FAILED_RUNS = 3  # sweep: single runs diverged or failed; the others are there
INTERRUPTED = 130  # Ctrl-C or SIGTERM; what was recorded is kept where a file was asked for

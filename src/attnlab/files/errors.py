"""InputError: something is wrong with what was given.

Anything else that goes wrong is our bug, and keeps its traceback.
"""


class InputError(ValueError):
    """Bad input. The message names the field and the remedy; the command line prints it alone."""

"""Claims of JoMA, as we read them, numbered by ourselves, and questions of ours.

They are known to us by re-derivation and by the numbers that the authors released, not from the
printed text. So each says "as we read it" in its source, and its verdict does, too.
"""

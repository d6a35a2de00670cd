"""Claims of JoMA, as we know them, numbered by ourselves, and questions of ours.

They are known to us by re-derivation and by the numbers that the authors released, not from the
printed text. The paper's `reading`, "as we know it", stands beside each verdict.
"""

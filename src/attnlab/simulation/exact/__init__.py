"""The exact path of sequence classes: counts in place of tokens, lumping, closed gradients."""

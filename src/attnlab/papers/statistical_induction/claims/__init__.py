"""Claims of statistical induction heads, as we know them, and questions of ours.

`minimal` is about the minimal model, whose start and end are known in closed form; `transformer`
about stages of the transformer, from ten seeds on file; `priors` about chains of
other priors, on both.
"""

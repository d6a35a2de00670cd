"""Statistical induction heads (Edelman, Tsilivis, Edelman, Malach and Goel, 2024), as known to us.

`theory` has the formulas, `task` and `model` what is trained, `predict` theories of a run, `runs`
and `evidence` the training runs, `claims` and `figures` what is made of them.
"""

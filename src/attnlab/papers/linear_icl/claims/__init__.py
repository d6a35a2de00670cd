"""Claims about linear attention that learns in-context regression: all rows of our table.

Runs are the flow of the expected loss, in the paper's time, and gradient descent on training sets
at the settings of the released code. Numbers have their standard error over seeds.
"""

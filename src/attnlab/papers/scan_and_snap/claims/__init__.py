"""The claims of "Scan and Snap": the paper, its poster and its slides, by what they are about.

Each function is given the case s on which its claim is examined: classes and learning rates under
the letters of the paper (s.P, s.K, s.M, s.eta_y, s.eta_z).
"""

"""Figures of the paper, with what is ours beside them."""

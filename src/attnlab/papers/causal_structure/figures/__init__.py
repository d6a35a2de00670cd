"""Figures of the paper at our sizes, with what is ours beside them."""

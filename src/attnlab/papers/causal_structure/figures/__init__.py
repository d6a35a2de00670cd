"""Figures of the paper worth making again, at our sizes, and what is ours beside them."""

"""The figures: those of the paper worth making again, and what is ours beside them."""

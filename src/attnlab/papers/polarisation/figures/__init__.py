"""The figures: those of the papers worth making again, and what is ours beside them."""

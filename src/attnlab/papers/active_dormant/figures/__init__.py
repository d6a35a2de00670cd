"""The figures: those of the paper worth making again, and one of ours."""

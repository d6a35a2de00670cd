"""Claims of the max-margin papers, as we know them, and our own about the same runs."""

"""Figures of the max-margin papers, made again, and ours."""

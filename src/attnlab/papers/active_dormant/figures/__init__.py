"""Figures of the paper, and one of ours."""

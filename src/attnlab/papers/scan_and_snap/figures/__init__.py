"""Figures of "Scan and Snap": each has its data, what they say about the claim, and a picture."""

"""Experiments about "Scan and Snap": its figures, and what it leaves open."""

from attnlab.experiments.base import Paper

PAPER = Paper(
    name="Scan and Snap",
    title="Scan and Snap: Understanding Training Dynamics and Token Composition in 1-layer "
    "Transformer",
    authors="Tian, Wang, Chen and Du",
    venue="NeurIPS",
    year=2023,
)

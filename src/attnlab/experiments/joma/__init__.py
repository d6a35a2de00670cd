"""Experiments about JoMA, the successor of "Scan and Snap".

What it claims is known here from memory and from numbers that its authors released; each recipe
says which settings are ours.
"""

from attnlab.experiments.base import Paper

PAPER = Paper(
    name="JoMA",
    title="JoMA: Demystifying Multilayer Transformers via JOint Dynamics of MLP and Attention",
    authors="Tian, Wang, Zhang, Chen and Du",
    venue="ICLR",
    year=2024,
)

"""Experiments about JoMA, the successor of "Scan and Snap".

Its claims are known to us by re-derivation and by the numbers that its authors released, not from
its printed text; each recipe says which settings are ours.
"""

from attnlab.experiments.base import Paper

PAPER = Paper(
    name="JoMA",
    title="JoMA: Demystifying Multilayer Transformers via JOint Dynamics of MLP and Attention",
    authors="Tian, Wang, Zhang, Chen and Du",
    venue="ICLR",
    year=2024,
)

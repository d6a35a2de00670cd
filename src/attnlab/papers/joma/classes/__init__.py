"""Sequence classes of JoMA: a toy, latent trees and layers of latents."""

from attnlab.papers.joma.classes.hierarchies import LatentLayers, hierarchy
from attnlab.papers.joma.classes.toys import joma_toy
from attnlab.papers.joma.classes.trees import LatentTree, hblt

__all__ = ["LatentLayers", "LatentTree", "hblt", "hierarchy", "joma_toy"]

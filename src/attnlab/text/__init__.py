"""Real text: corpora, a small transformer, and what its attention does while it trains."""

from attnlab.text.classes import estimate_classes
from attnlab.text.corpus import Corpus, Source, open_corpus
from attnlab.text.measure import snap_step
from attnlab.text.model import TransformerSpec
from attnlab.text.train import train
from attnlab.text.training import Training

__all__ = [
    "Corpus",
    "Source",
    "Training",
    "TransformerSpec",
    "estimate_classes",
    "open_corpus",
    "snap_step",
    "train",
]

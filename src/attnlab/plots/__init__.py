"""Drawing labelled results with matplotlib: simulated, predicted, or read from a file.

    import attnlab

    result = attnlab.simulate("syn-small")
    attnlab.plots.bars(result).savefig("bars.png")          # attention at a few moments
    attnlab.plots.heatmap(result).savefig("heatmap.png")    # the same at all of them
    attnlab.plots.curves(result, "loss").savefig("loss.png")

`compare(simulated, predicted)` draws two results that align; `heads(result)` draws what an observer
saw of a model. Each gives a matplotlib figure.
"""

from attnlab.plots.attention import bars, compare, curves, heatmap
from attnlab.plots.heads import heads

__all__ = ["bars", "compare", "curves", "heads", "heatmap"]

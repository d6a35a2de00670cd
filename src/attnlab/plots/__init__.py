"""Drawing labelled results with matplotlib: simulated, predicted, swept, or read from a file.

    import attnlab

    result = attnlab.simulate("syn-small")
    attnlab.plots.bars(result).savefig("bars.png")          # attention at a few times
    attnlab.plots.heatmap(result).savefig("heatmap.png")    # the same at all of them
    attnlab.plots.curves(result, "loss").savefig("loss.png")
    attnlab.plots.animate(result, "run.gif")                # the bars, moving

`compare(simulated, predicted)` draws two results that align, `grid(result)` what came out of a
sweep, `heads(result)` what an observer saw of a model. Each gives a matplotlib figure. Most take
`classes` and `tokens`, by number or by name: `bars(result, classes="won", tokens=["the", "goal"])`.
"""

from attnlab.plots.animation import animate
from attnlab.plots.attention import bars, compare, curves, heatmap
from attnlab.plots.grid import grid
from attnlab.plots.heads import heads

__all__ = ["animate", "bars", "compare", "curves", "grid", "heads", "heatmap"]

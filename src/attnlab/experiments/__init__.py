"""Experiments: the figures of papers, made again, and studies; one file each, one protocol.

    from attnlab.experiments import experiment, recipe_for, run

    fig9 = experiment("fig9")
    curves = fig9.data(recipe_for("fig9"))    # a labelled dataset
    fig9.draw(curves).savefig("fig9.png")     # a matplotlib figure
    print(fig9.judge(curves).summary)         # what it says about the claim

    run(fig9, recipe_for("fig9"), out="out")  # all of it, as files in a folder of its paper

Where several papers have a figure of one name, say "paper/figure". An experiment of your own is an
`Experiment` as well (docs/guides/own_paper.md).

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

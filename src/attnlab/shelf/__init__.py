"""The shelf: which papers there are, and what each of them offers.

A paper is a folder with a `paper.yaml`. It is one of those that come with attnlab, an installed
package (entry-point group `attnlab.papers`), or a plain folder (`ATTNLAB_PAPERS`, or `add_folder`).
Finding papers reads their `paper.yaml` and imports none of their code:

    from attnlab.shelf import reference, shelf

    for paper in shelf().papers:
        print(paper.year, paper.short, list(paper.theories))
    for fault in shelf().faults:
        print(fault.name, fault.reason)
    syn_small = reference("presets", "syn-small").load()  # imports what it names

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Prediction against measurement: claims, verdicts, and the audit of a run.

    import attnlab

    attnlab.audit("syn-small", eta_y=10.0, eta_z=1.0).errors

The claims of papers are found by their ids, and each can be examined on its own:
`attnlab.auditing.select(["theorem-2"])[0].examine().verdict`.

`__init__.pyi` lists the public names, which are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

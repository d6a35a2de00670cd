"""What a result has, read off results: a small run, and what a theory says of it.

```{schema}
```
"""

from __future__ import annotations

from typing import Any

import xarray as xr
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import attnlab
from extension.tables import section, table


class Schema(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        run = attnlab.Simulation(
            "syn-small", gradient="population", motion=attnlab.Steps(2), eta_y=[1.0, 2.0]
        )
        simulated = attnlab.simulate(run, progress=False)
        return [
            *_parts(simulated, "simulate()"),
            *_parts(attnlab.predict(run, theory="corrected"), "predict()", beside=simulated),
        ]


def _parts(result: xr.Dataset, verb: str, beside: xr.Dataset | None = None) -> list[nodes.section]:
    """Dims, coords, variables and attributes; of a second result what the first has not."""
    known = set() if beside is None else {*beside.sizes, *beside.variables, *beside.attrs}
    arrays = [
        (f"`{name}`", f"`{', '.join(of.dims)}`" if of.dims else "", f"`{of.dtype}`", kind)
        for kind, group in (("coord", result.coords), ("variable", result.data_vars))
        for name, of in group.items()
        if name not in known
    ]
    attrs = [(f"`{name}`", _short(of)) for name, of in result.attrs.items() if name not in known]
    found = [section(f"{verb}: arrays", table(("name", "dims", "dtype", ""), arrays))]
    if attrs:
        found.append(section(f"{verb}: attributes", table(("name", "here"), attrs)))
    return found


def _short(value: Any) -> str:
    text = str(value)
    return f"`{text}`" if len(text) < 80 else f"`{text[:77]}...`"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("schema", Schema)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""attnlab cite: what to cite for papers, for attnlab and for a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from attnlab.cli import options
from attnlab.cli.arguments import PAPERS, completing
from attnlab.cli.printing import say
from attnlab.files.citation import ATTNLAB_BIBTEX
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.files.names import visible
from attnlab.files.progress import waiting
from attnlab.shelf import shelf

HELP = """Print what to cite: papers and attnlab, and for a result file how it was made.

Name a paper for that alone; otherwise all papers on the shelf are printed but what is ours.

\b
Examples:
  attnlab cite
  attnlab cite PAPER
  attnlab cite result.nc
"""


def cite_verb(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAPER|FILE]", help="A paper, or a result of attnlab (netCDF).",
            autocompletion=completing(*PAPERS),
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:  # fmt: skip
    named = [known for known in shelf().papers if known.name == what]
    if what is not None and not named and not os.path.exists(what):
        hint = did_you_mean(what, PAPERS)
        raise InputError(f"what: {what!r} is neither a paper on the shelf nor a file; {hint}")
    with waiting("looking" if named or what is None else f"reading {what}", quiet=as_json):
        run = None if named or what is None else _run(Path(what))
    papers = named or [known for known in shelf().papers if known.reading != "ours"]
    entries = [*(known.citation for known in papers), ATTNLAB_BIBTEX]
    if as_json:
        print(json.dumps({"bibtex": entries, "run": run}, indent=2, allow_nan=False))
        return
    if run is not None:
        for line in _comment(run):
            say(f"% {visible(line)}".rstrip())  # a line of a name would be no comment
        print()
    print("\n\n".join(entries))


def _run(file: Path) -> dict[str, Any]:
    from attnlab.experiments.made import file_digest
    from attnlab.files.netcdf import load

    attrs = load(file).attrs
    if "spec" not in attrs:
        raise InputError(f"{file}: says nothing about how it was made; give a result of attnlab")
    run: dict[str, Any] = {"file": str(file), "sha256": file_digest(file)}
    for name, value in attrs.items():
        run[str(name)] = json.loads(value) if name in ("spec", "versions") else value
    return run


def _comment(run: dict[str, Any]) -> list[str]:
    """How a run was made, as comments that a bibliography can carry."""
    lines = [f"{run['file']} (sha256 {run['sha256']})"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    lines.append(f"made by attnlab at {run['made_at']} with {versions}")
    if "device" in run:
        lines.append(f"on {run['device']}, {run.get('dtype', '')}")
    for name, value in run["spec"].items():
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        lines.append(f"  {name}: {text}")
    return lines

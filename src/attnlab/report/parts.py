"""The parts that `attnlab reproduce` makes, by name; no paper is imported."""

from __future__ import annotations

from collections.abc import Sequence

from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError
from attnlab.shelf import figure, offered, paper, shelf
from attnlab.shelf.papers import figures

AUDIT, WHOLE = "audit", "report"


def chosen_parts(names: Sequence[str]) -> list[str]:
    """Return the parts that are named, figures as "paper/figure", in the order of the papers."""
    every = [*offered("figures"), AUDIT, WHOLE]
    if not names:
        return [*figures(ours=False), AUDIT, WHOLE]
    papers = {known.name: known for known in shelf().papers}
    asked: list[str] = []
    for name in names:
        if name in (AUDIT, WHOLE):
            asked.append(name)
        elif name in papers:
            if not papers[name].figures:
                raise InputError(f"name: the paper {name!r} has no figures; name another part")
            asked += [f"{name}/{short}" for short in papers[name].figures]
        elif "/" in name or any(full.endswith(f"/{name}") for full in every):
            whose, short, _ = figure(name)
            asked.append(f"{whose.name}/{short}")
        else:
            if any(fault.name == name for fault in shelf().faults):
                paper(name)  # says why it cannot be used
            known = [*(full.rpartition("/")[2] for full in every), *papers]
            raise InputError(f"name: {name!r} is not a part; {did_you_mean(name, known)}")
    return [name for name in every if name in asked]

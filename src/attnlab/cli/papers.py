"""attnlab papers, check-paper, new-paper and cite: the papers, and what to do with one."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from attnlab.cli.exit_codes import NOT_AS_RECORDED
from attnlab.cli.options import PAPERS
from attnlab.cli.printing import say, say_json, show_table
from attnlab.files.documents import did_you_mean
from attnlab.files.errors import InputError, visible
from attnlab.files.progress import LOADING, waiting
from attnlab.shelf import Fault, Paper, add_folder, shelf
from attnlab.shelf import paper as paper_called
from attnlab.shelf.papers import ATTNLAB_BIBTEX, standing


def papers_verb(*, paper: list[Path] | None = None, as_json: bool = False) -> None:
    """List the papers, and how their claims and figures stand.

    Papers come with attnlab, with installed packages (entry points attnlab.papers), or in folders
    that the environment variable ATTNLAB_PAPERS names. Only their paper.yaml and expected.json are
    read. A claim with two verdicts, on its formulas and in training, is listed with both where they
    differ. A paper that cannot be used is named below the table, with the reason.

    \b
    Examples:
      attnlab papers
      attnlab papers --paper ./my_paper
      attnlab papers --json

    Options
    -------
    paper
        A folder with a paper of your own; repeatable.
    """
    for folder in paper or ():
        add_folder(folder)
    faults = list(shelf().faults)
    rows = [_row(known, faults) for known in shelf().papers]
    if as_json:
        say_json({"papers": rows, "faults": [asdict(of) for of in faults]})
        return
    from markupsafe import Markup

    from attnlab.files.markdown import words

    def lines(of: Iterable[str]) -> Markup:
        return Markup("<br>").join(map(words, of))

    def counted(standings: Mapping[str, int]) -> Markup:
        return lines(f"{count} {of}" for of, count in standings.items())

    shown = [
        {
            "paper": lines([row["name"], f"{row['authors']} ({row['year']})"]),
            "question": row["question"],
            "claims": counted(row["claims"]),
            "figures": counted(row["figures"]),
        }
        for row in rows
    ]
    show_table(shown)
    for fault in faults:
        say(f"{fault.name} cannot be used: {fault.reason}")


def check_paper_verb(paper: str, *, verdicts: bool = True, as_json: bool = False) -> None:
    """Check that a paper fulfils all that attnlab asks of one.

    Its manifest, references, theory, alignment of prediction and simulation, samples, claims,
    recorded verdicts, figures (on the recipes in recipes/tiny), links, and values in worker
    processes. The folder's conformance.yaml may name expected failures, each with its reason; they
    must fail then.

    \b
    Examples:
      attnlab check-paper own_paper
      attnlab check-paper ./my_paper --no-verdicts

    Exit code 0; 1 when a requirement is not fulfilled; 2 for bad input.

    Options
    -------
    paper : NAME|DIR
        A paper's name, or its folder.
    verdicts
        Find the recorded verdicts again, which may take minutes.
    """
    is_folder = os.sep in paper or os.path.isdir(paper)
    known = add_folder(paper) if is_folder else paper_called(paper)
    with waiting(LOADING, quiet=as_json):
        from attnlab.authoring import examine, requirements

        asked = requirements(known, verdicts=verdicts)
    outcomes = []
    for i, requirement in enumerate(asked, 1):
        with waiting(f"{i} of {len(asked)}: {requirement}", quiet=as_json):
            outcomes.append(examine(requirement))
        if not as_json:
            last = outcomes[-1]
            say(f"{last.standing}: {last.id}{f' ({last.note})' if last.note else ''}")
    failed = sum(not outcome.passed for outcome in outcomes)
    if as_json:
        listed = [asdict(outcome) for outcome in outcomes]
        say_json({"paper": known.name, "failed": failed, "outcomes": listed})
    else:
        say(f"{known.name}: {len(outcomes) - failed} of {len(outcomes)} as they should be")
    if failed:
        raise typer.Exit(NOT_AS_RECORDED)


def new_paper_verb(name: str, *, out: Path = Path(".")) -> None:
    """Write a small paper that works, under a name of yours.

    \b
    Examples:
      attnlab new-paper my_paper
      attnlab new-paper my_paper --out papers

    Options
    -------
    name
        Lower-case words with _ between them.
    out
        The folder for its folder.
    """
    from attnlab.authoring.template import new_paper

    folder = new_paper(name, out=out)
    say(f"wrote {folder}")
    where = os.path.join(".", folder)
    say(f"attnlab check-paper {where} checks it")
    install = shlex.join([sys.executable, "-m", "pip", "install", "-e", where])
    say(f"{install} lets every command find it")


def _row(paper: Paper, faults: list[Fault]) -> dict[str, Any]:
    """Return the entry of a paper; a bad `expected.json` is one more fault."""
    try:
        expected = paper.expected
    except InputError as error:
        faults.append(Fault(paper.name, str(paper.folder), str(error)))
        expected = {"claims": {}, "figures": {}}
    without = len(paper.figures) - len(expected["figures"])
    texts = ("name", "title", "authors", "year", "question", "reading")
    return {
        **{key: getattr(paper, key) for key in texts},
        "claims": _standings(expected["claims"]),
        "figures": _standings(expected["figures"]) | ({"not recorded": without} if without else {}),
        "folder": str(paper.folder),
    }


def _standings(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Count how often each standing is recorded, the most frequent first."""
    counts = Counter(standing(entry) or "not recorded" for entry in entries.values())
    return dict(counts.most_common())


def cite_verb(what: str | None = None, *, as_json: bool = False) -> None:
    """Print what to cite; for a result file also how it was made.

    Name a paper to print that alone; without a name it prints all papers but our own studies.

    \b
    Examples:
      attnlab cite
      attnlab cite PAPER
      attnlab cite result.nc

    Options
    -------
    what : [PAPER|FILE]
        A paper, or a result of attnlab (netCDF).
    """
    named = [known for known in shelf().papers if known.name == what]
    if what is not None and not named and not os.path.exists(what):
        hint = did_you_mean(what, PAPERS)
        raise InputError(f"what: {what!r} is neither a known paper nor a file; {hint}")
    with waiting("looking" if named or what is None else f"reading {what}", quiet=as_json):
        run = None if named or what is None else _run(Path(what))
    papers = named or [known for known in shelf().papers if known.reading != "ours"]
    entries = [*(known.citation for known in papers), ATTNLAB_BIBTEX]
    if as_json:
        say_json({"bibtex": entries, "run": run})
        return
    if run is not None:
        for line in _comment(run):
            say(f"% {visible(line)}".rstrip())  # a line of a name would be no comment
        print()
    print("\n\n".join(entries))


def _run(file: Path) -> dict[str, Any]:
    from attnlab.experiments.running import file_digest
    from attnlab.files.netcdf import load

    attrs = load(file).attrs
    if "spec" not in attrs:
        raise InputError(f"{file}: says nothing about how it was made; give a result of attnlab")
    run: dict[str, Any] = {"file": str(file), "sha256": file_digest(file)}
    for name, value in attrs.items():
        run[str(name)] = json.loads(value) if name in ("spec", "versions") else value
    return run


def _comment(run: dict[str, Any]) -> list[str]:
    """Return how a run was made, as lines of comments for a bibliography."""
    lines = [f"{run['file']} (sha256 {run['sha256']})"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    lines.append(f"made by attnlab at {run['made_at']} with {versions}")
    if "device" in run:
        lines.append(f"on {run['device']}, {run.get('dtype', '')}")
    for name, value in run["spec"].items():
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        lines.append(f"  {name}: {text}")
    return lines

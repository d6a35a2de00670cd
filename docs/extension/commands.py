"""Every command with its arguments and options, from the application itself, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlab.cli import exit_codes
from attnlab.cli.app import app as attnlab
from extension.tables import paragraph, section, table

CODE = re.compile(r"^(\w+) = (\d+)(?:  # (.*))?$", re.MULTILINE)


class Commands(SphinxDirective):
    """All commands, a section each."""

    def run(self) -> list[nodes.Node]:
        return list(_sections(typer.main.get_command(attnlab), "attnlab"))


class ExitCodes(SphinxDirective):
    """What the exit codes mean: constants and comments of cli/exit_codes.py."""

    def run(self) -> list[nodes.Node]:
        found = CODE.findall(Path(exit_codes.__file__).read_text(encoding="utf-8"))
        rows = [(f"`{code}`", name.lower().replace("_", " "), why) for name, code, why in found]
        return [table(("code", "name", "when"), [("`0`", "done", ""), *rows])]


def _sections(command: Any, name: str) -> list[nodes.section]:
    """A command, and after it those that it groups."""
    context = typer.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    content = [nodes.literal_block(usage, usage, language="text"), *_help(command.help or "")]
    records = [of.get_help_record(context) for of in command.get_params(context)]
    rows = [
        (f"`{record[0]}`", record[1]) for record in records if record is not None
    ]  # else hidden
    if rows:
        content.append(table(("option", "meaning"), rows))
    found = [section(name, *content, code=True)]
    for word, part in getattr(command, "commands", {}).items():
        found += _sections(part, f"{name} {word}")
    return found


def _help(text: str) -> list[nodes.Node]:
    """Paragraphs of a help text; what follows \\b is laid out by hand."""
    found: list[nodes.Node] = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.startswith("\b\n"):
            heading, _, block = part[2:].partition("\n")
            block = re.sub("^  ", "", block, flags=re.MULTILINE)
            found += [paragraph(heading), nodes.literal_block(block, block, language="sh")]
        else:
            found.append(paragraph(part))
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("commands", Commands)
    app.add_directive("exit-codes", ExitCodes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

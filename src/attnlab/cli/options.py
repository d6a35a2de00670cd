"""Commands from functions: parameters are arguments and options, and docstrings are their help.

The options of a run are derived from its value: a new field of `Simulation`, or of a value inside
it, needs no edit here.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass
from functools import cached_property, reduce
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand

from attnlab.files.documents import parse_document, shown
from attnlab.files.errors import InputError
from attnlab.files.recipe import Named, as_value
from attnlab.shelf import offered, shelf

# Read from each paper.yaml: help and completion import no paper and no JAX.
PAPERS = tuple(paper.name for paper in shelf().papers)
PRESETS = (
    *offered("presets"),
    "family",
    "single-common",
    "symmetric",
    "local-common",
    "zipf",
    "random",
)
MODELS = ("pairwise", "embedded", "extended", *offered("models"))
THEORIES = tuple(offered("theories"))
PRESET = PRESETS[0]  # of examples in help texts
PICTURES = (".png", ".pdf", ".svg")
FIGURES = tuple(offered("figures"))
WITH_FIGURES = tuple(dict.fromkeys(name.partition("/")[0] for name in FIGURES))
_SHORT = [name.partition("/")[2] for name in FIGURES]
_OWN = [name for name in _SHORT if _SHORT.count(name) == 1]  # of one paper alone
PARTS = (*WITH_FIGURES, *_OWN, "audit", "report", *FIGURES)
# The words that a shell completes, by the name of the parameter.
COMPLETED = {"given": PRESETS, "theory": THEORIES, "paper": PAPERS, "what": PAPERS, "parts": PARTS}
HELP_WORDS = {
    "preset": PRESET,
    "presets": ", ".join(PRESETS),
    "models": ", ".join(MODELS),
    "theory": THEORIES[0],
    "theories": ", ".join(THEORIES),
    "papers": ", ".join(WITH_FIGURES),
}


def completing(*words: str) -> Callable[[str], list[str]]:
    """Return a function that completes words for a shell."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def numbers(name: str, text: str) -> list[float]:
    """Return the numbers in a text, with commas between them; `name` is the option."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"{name}: expected a number, or several such as 1,2.5; got {text!r}"
        ) from None


def check_writable(path: Path | None, endings: tuple[str, ...], field: str) -> None:
    """Refuse a file that could not be written, before the work starts."""
    if path is None:
        return
    if path.suffix not in endings:
        raise InputError(f"{field}: the name should end in {' or '.join(endings)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"{field}: the folder {path.parent} does not exist")
    try:
        with suppress(FileNotFoundError):
            os.stat(path)
    except OSError as problem:  # no such name can be: too long, say, or a link to itself
        raise InputError(f"{field}: {path}: {problem.strerror}") from None


if TYPE_CHECKING:
    from attnlab.simulation import Simulation
    from attnlab.tasks.classes import SequenceClasses

PANELS = ("task", "model", "motion", "gradient", "record", "run", "output")
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
MOST_CHOICES = 3  # that the form of an option lists


def group(help_text: str, **more: Any) -> typer.Typer:
    """Return an application, or a part of one, in attnlab's style."""
    settings = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings=settings,
        **more,
    )


def add(app: typer.Typer, name: str, verb: Callable[..., None]) -> None:
    """Add a verb to an application: its docstring is the help, its parameters are options.

    Positional parameters are arguments. The docstring describes each parameter under the heading
    of its panel, as "name : FORM" or "name : --flag" where these differ from what its name and
    type say. `_shared` describes those that several verbs have.
    """
    app.command(name, help=_documented(verb)[0])(_with_signature(verb, _parameters(verb)))


def _shared() -> None:
    """Parameters that several verbs share.

    Arguments
    ---------
    given : CLASSES|RUN
        A preset, a file of sequence classes, or a file of a run.

    Task
    ----
    prior
        Probability of each class: 0.7,0.3.

    Run
    ---
    seed
        Run this seed only (overrides --seeds).

    Output
    ------
    out
        Write the result (netCDF).
    show_classes
        Draw these classes, by number or next word: 0,won.
    show_tokens
        Draw these tokens, by number or name: 3,goal.
    as_json : --json
        Print one JSON document.
    """


def _documented(verb: Callable[..., None]) -> tuple[str, dict[str, tuple[str, str, str]]]:
    """Return the help of a verb, and the panel, form and help of each parameter."""
    help_text, *rest = re.split(r"\n\n(\w+)\n-+\n", inspect.getdoc(verb) or "")
    found = {}
    for panel, body in zip(rest[::2], rest[1::2], strict=True):
        for block in re.split(r"\n(?=\S)", body):
            head, _, words = block.partition("\n")
            name, _, form = head.partition(" : ")
            found[name] = panel, form, " ".join(words.split()).format(**HELP_WORDS)
    return help_text.format(**HELP_WORDS), found


def _parameters(verb: Callable[..., None]) -> list[inspect.Parameter]:
    """Return the parameters of a verb as typer takes them."""
    documented = _documented(_shared)[1] | _documented(verb)[1]
    found = []
    for of in inspect.signature(verb, eval_str=True).parameters.values():
        if of.kind is of.VAR_KEYWORD:
            continue
        panel, form, words = documented[of.name]
        info: dict[str, Any] = {"help": words, "rich_help_panel": panel}
        if of.name in COMPLETED and of.annotation in (str, str | None, list[str] | None):
            info["autocompletion"] = completing(*COMPLETED[of.name])
        flag = f"--{of.name.replace('_', '-')}"
        if form.startswith("--"):
            flag, form = form, ""
        elif of.default is True:
            flag = f"{flag}/--no-{flag[2:]}"
        info |= {"metavar": form} if form else {}
        option = of.kind is KEYWORD_ONLY
        typed = typer.Option(flag, **info) if option else typer.Argument(**info)
        found.append(of.replace(kind=KEYWORD_ONLY, annotation=Annotated[of.annotation, typed]))
    return found


def _with_signature(
    verb: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return a verb with these parameters in its signature, from which typer makes a command."""

    def called(**given: Any) -> None:
        verb(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


class Option(NamedTuple):
    """A setting of a run as an option.

    home: the field of the run that has it, or "run". kind: the type that its text is read as.
    """

    name: str
    home: str
    kind: Any
    default: Any
    help: str

    def parameter(self) -> inspect.Parameter:
        """Return it as a parameter of a verb; None where it is not given."""
        flag = self.kind is bool
        info = typer.Option(
            help=f"{self.help}{_default_words(self.default)}",
            rich_help_panel=self.home.title(),
            metavar=None if flag else _metavar(self.kind),
            autocompletion=None if flag else completing(*_choices(self.kind)),
        )
        kind: Any = Annotated[(bool if flag else str) | None, info]
        return inspect.Parameter(self.name, KEYWORD_ONLY, default=None, annotation=kind)

    def read(self, text: str | bool) -> Any:
        """Return the value that a text on the command line stands for."""
        if isinstance(text, bool):
            return text
        if _is_named(self.kind):
            return as_value(self.name, _named(self.name, text), self.kind)
        several = [of for of in _parts(self.kind) if get_origin(of) in (tuple, Sequence)]
        words = text.split(",") if several else [text]
        values = [_scalar(self.name, word) for word in words]
        single = len(values) == 1 and len(several) < len(_parts(self.kind))
        return as_value(self.name, values[0] if single else values, self.kind)


@dataclass(frozen=True)
class RunOptions:
    """The settings of a family of runs as options, derived when they are first needed.

    Parameters
    ----------
    values : mapping
        "module:name" of the value whose settings are options, by the field of the run that has it.
        Of other fields, the settings of every kind that can stand there are options.
    usual : str, optional
        "module:name" of a function that returns the usual run, whose settings are the defaults in
        the help; by default those of the values.
    without : sequence, optional
        Settings that mean nothing in these runs.
    """

    values: Mapping[str, str]
    usual: str = ""
    without: Sequence[str] = ()

    @cached_property
    def by_name(self) -> dict[str, Option]:
        """All options by the names of their settings, panel by panel."""
        found: dict[str, Option] = {}
        for option in sorted(self._found(), key=lambda of: PANELS.index(of.home)):
            if option.name not in self.without:
                found.setdefault(option.name, option)
        return found

    def _found(self) -> Iterator[Option]:
        from attnlab.simulation.record import Record
        from attnlab.simulation.settings import settings_of
        from attnlab.simulation.simulation import BASES, FIELD_KINDS, Simulation

        usual = resolve_name(self.usual)() if self.usual else None
        homes: dict[str, list[Any]] = {"record": [Record]}
        for name, base in BASES.items():
            several = name not in self.values
            homes[name] = [*base.kinds().values()] if several else [resolve_name(self.values[name])]
        own = settings_of(Simulation)
        for name, kind in FIELD_KINDS.items():
            if (readable := _readable(kind)) is not None:
                # a run keeps the list of its seeds, and their number is asked for
                of_value = usual is None or name == "seeds"
                default = own[name].default if of_value else getattr(usual, name)
                home = name if name in homes else "run"
                yield Option(name, home, readable, default, own[name].help)
            for value in homes.get(name, ()):
                for setting in reversed(settings_of(value).values()):
                    readable = _readable(setting.hint)
                    if setting.default is MISSING or readable is None:
                        continue  # the argument of the verb, or what only Python can give
                    default = setting.default
                    if usual is not None and type(getattr(usual, name)) is value:
                        default = reduce(getattr, setting.path, getattr(usual, name))
                    yield Option(setting.name, name, readable, default, setting.help)

    def read(self, given: Mapping[str, str | bool | None]) -> dict[str, Any]:
        """Return the settings that were given, as `as_simulation` takes them."""
        chosen = {name: text for name, text in given.items() if text is not None}
        return {name: self.by_name[name].read(text) for name, text in chosen.items()}

    def add(self, app: typer.Typer, name: str, verb: Callable[..., None]) -> None:
        """Add a verb to an application; it gets the options that were given as `settings`."""

        class Verb(RunCommand):
            make = staticmethod(lambda: self._with_options(verb))

        def stand_in() -> None:
            """Hold the place of the verb: its options are derived when they are asked for."""

        app.command(name, help=_documented(verb)[0], cls=Verb)(stand_in)

    def _with_options(self, verb: Callable[..., None]) -> Callable[..., None]:
        own = _parameters(verb)
        names = {of.name for of in own}

        def called(**given: Any) -> None:
            settings = self.read({name: of for name, of in given.items() if name not in names})
            verb(**{name: given[name] for name in names}, **settings)

        options = [of.parameter() for of in self.by_name.values() if of.name not in names]
        return _with_signature(called, [own[0], *options, *own[1:]])


class RunCommand(TyperCommand):
    """A verb with the options of a run, made when they are first asked for.

    Deriving them imports numpy and xarray. Other verbs, and a shell that completes them, need not
    wait for that.
    """

    make: Callable[[], Callable[..., None]]  # returns the verb with its whole signature

    @cached_property
    def made(self) -> Any:
        """The command that typer makes of the whole signature."""
        app = typer.Typer(add_completion=False)
        app.command(self.name)(self.make())
        return typer.main.get_command(app)

    def get_params(self, ctx: Any) -> Any:
        """Return all arguments and options."""
        return self.made.get_params(ctx)

    def invoke(self, ctx: Any) -> Any:
        """Call the verb."""
        return self.made.invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel; typer's own panels cut names in a narrow terminal."""
        homes = [home.title() for home in PANELS]
        panels: dict[str, list[Any]] = {}
        for param in self.get_params(ctx):
            if (line := param.get_help_record(ctx)) is not None:
                panel = getattr(param, "rich_help_panel", None) or "Other"
                panels.setdefault(panel, []).append(line)
        last = [*(of for of in homes if of in panels), "Other"]
        for panel in (*(of for of in panels if of not in last), *last):
            with formatter.section(panel):
                formatter.write_dl(panels[panel])


SEQUENCES = RunOptions(
    {"task": "attnlab.tasks:Sequences", "model": "attnlab.models:Extended"}, without=("loss",)
)
TEXT = RunOptions(
    {
        "task": "attnlab.tasks.text:Text",
        "model": "attnlab.models:Transformer",
        "motion": "attnlab.simulation:Steps",
        "gradient": "attnlab.simulation:Batches",
    },
    usual="attnlab.simulation:text_run",
    without=(
        "model",
        "motion",
        "gradient",
        "eta_y",
        "eta_z",
        "loss",
        "init",
        "exact",
        "probe",
        "readout",
    ),
)


def run_of(
    given: str, settings: Mapping[str, Any], *, prior: str | None = None, seed: int | None = None
) -> Simulation:
    """Return the run of classes, or of a file, with the settings that were given as options."""
    from attnlab.simulation.settings import as_simulation

    chosen = settings if seed is None else {**settings, "seeds": [seed]}
    return as_simulation(read(given, prior), **chosen)


def read(given: str, prior: str | None = None) -> Simulation | SequenceClasses:
    """Return the run of a file, or the classes of a file or a preset, with the prior given."""
    from attnlab.simulation.settings import as_simulation, read_given
    from attnlab.simulation.simulation import Simulation

    known = read_given(given)
    classes = known.classes if isinstance(known, Simulation) else known
    if isinstance(classes, tuple):
        raise InputError("task: the command line takes one set of classes; run several in Python")
    if prior is None:
        return known
    changed = classes.with_prior(numbers("prior", prior))
    return as_simulation(known, classes=changed) if isinstance(known, Simulation) else changed


def drawn(
    show_classes: str | None, show_tokens: str | None, *pictures: Path | None
) -> dict[str, list[int | str]]:
    """Return the classes and tokens that a drawing shows, as `attnlab.plots` takes them."""
    given = {"classes": show_classes, "tokens": show_tokens}
    asked = {name: text for name, text in given.items() if text is not None}
    if asked and not any(pictures):
        raise InputError(f"show-{next(iter(asked))}: belongs to a drawing; give --plot with it")
    return {
        name: [int(word) if word.isdecimal() else word for word in map(str.strip, text.split(","))]
        for name, text in asked.items()
    }


# -- types and texts ----------------------------------------------------------------------------


def _is_named(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Named)


def _parts(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union but None; of another type, itself."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(of for of in members if of is not NoneType)


def _readable(kind: Any) -> Any:
    """Return the part of a type that a text can give; None if there is none."""
    if get_origin(kind) in (Union, UnionType):
        kept = [of for of in _parts(kind) if _readable(of) is not None]
        return Union[*kept] if kept else None
    if get_origin(kind) in (tuple, Sequence):
        return kind if _readable(get_args(kind)[0]) is not None else None
    plain = get_origin(kind) is Literal or kind in (bool, int, float, str)
    return kind if plain or _is_named(kind) or hasattr(kind, "from_document") else None


def _choices(kind: Any) -> list[str]:
    """Return the words among which an option chooses."""
    from attnlab.models.base import Model

    if kind is Model:
        return list(MODELS)
    if _is_named(kind):
        return list(kind.kinds())
    if hasattr(kind, "from_document"):
        return [str(of) for of in get_args(get_type_hints(kind)["name"])]
    return [
        str(of) for part in _parts(kind) if get_origin(part) is Literal for of in get_args(part)
    ]


def _metavar(kind: Any) -> str:
    """Return the form of an option's value, for the help."""
    if _is_named(kind):
        few = len(_choices(kind)) <= MOST_CHOICES
        return "|".join(_choices(kind)) if few else "NAME[:FIELD=VALUE,...]"
    words = dict.fromkeys(_word(of) for of in _parts(kind) if not _is_named(of))
    several = [of for of in words if of.endswith(",...")]
    return "|".join(of for of in words if f"{of},..." not in several)


def _word(kind: Any) -> str:
    if choices := _choices(kind):
        return "|".join(choices)
    if get_origin(kind) in (tuple, Sequence):
        return f"{_word(get_args(kind)[0])},..."
    return {int: "N", float: "X"}.get(kind, "TEXT")


def _default_words(default: Any) -> str:
    """Return a default for the help; nothing where there is none, or a flag that is off."""
    if default is None or default is False:
        return ""
    if default is True:
        return "  [default: on]"
    named = default.called() if isinstance(default, Named) else getattr(default, "name", default)
    return f"  [default: {named:g}]" if isinstance(named, float) else f"  [default: {named}]"


def _named(where: str, text: str) -> dict[str, Any]:
    """Return a name and its fields, ``extended:heads=4,residual=true``, as a document."""
    name, colon, rest = text.partition(":")
    given: dict[str, Any] = {"name": name.strip()}
    for part in rest.split(",") if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(f"{where}: expected field=value, got {part.strip()!r}")
        if key in given:
            raise InputError(f"{where}.{key}: given twice")
        given[key] = _scalar(f"{where}.{key}", value)
    return given


def _scalar(where: str, text: str) -> Any:
    """Return a number, a word, or true or false, as a file would have it; 1e3 is whole."""
    if not text.strip():
        raise InputError(f"{where}: empty; give a number or a word")
    try:
        value = parse_document(text, suffix=".yaml", advice="give a number or a word")
    except (InputError, UnicodeEncodeError) as error:  # lone surrogates cannot be encoded
        words = error if isinstance(error, InputError) else f"{text!r} is not text"
        raise InputError(f"{where}: {words}") from error
    if isinstance(value, list | dict):
        raise InputError(f"{where}: expected a number or a word, got {shown(value)}")
    return int(value) if isinstance(value, float) and value.is_integer() else value

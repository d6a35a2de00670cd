"""State: what is on the screen, and the link that brings it back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

from attnlab.files.documents import check_keys, parse_document, shown
from attnlab.files.errors import InputError
from attnlab.files.recipe import as_recipe
from attnlab.playground.setting import Setting

KEY = "s"
# Characters of a query. Bokeh's websocket asks with the query and, compressed, with a copy of it,
# and the server refuses a request of 64 kB.
MOST_LINKED = 30_000
ADVICE = "open the page without it to start afresh"


@dataclass(frozen=True, kw_only=True)
class View:
    """How it is looked at: the guide, the theory on or off, the first class shown, the head."""

    guide: str = ""
    theory: bool = True
    first: int = 0
    head: int = 0

    def __post_init__(self) -> None:
        for name in ("first", "head"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}: expected at least 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class State:
    """A run, the run that it is compared with if any, and the view.

    compare: the one control that is turned in B; nothing without a B.
    """

    a: Setting = field(default_factory=Setting)
    b: Setting | None = None
    compare: str = ""
    view: View = field(default_factory=View)

    def __post_init__(self) -> None:
        if self.b is None and self.compare:
            raise InputError(f"compare: {self.compare!r} is turned in b, which is missing")
        if self.b is not None:
            if self.compare not in {f.name for f in fields(Setting)}:
                raise InputError(f"compare: {self.compare!r} is not a control")
            if self.b != self.a.turned(self.compare, getattr(self.b, self.compare)):
                raise InputError(f"b: differs from a in more than {self.compare}; turn one control")

    def with_setting(self, setting: Setting) -> State:
        """Another run A; B follows it but for the control that is turned in it."""
        if self.b is None:
            return replace(self, a=setting)
        alone = replace(self, a=setting, b=None, compare="")
        return alone.with_change(self.compare, getattr(self.b, self.compare))

    def with_change(self, compare: str, value: Any) -> State:
        """Compare A with the run in which one control has another value."""
        return replace(self, b=self.a.turned(compare, value), compare=compare)


def changes(old: Any, new: Any) -> dict[str, Any]:
    """The fields of `new` that differ from `old`, by name."""
    pairs = {f.name: (getattr(old, f.name), getattr(new, f.name)) for f in fields(old)}
    return {name: value for name, (was, value) in pairs.items() if was != value}


def to_query(state: State) -> str:
    """A URL's query for a state: what differs from the defaults, as compact JSON."""
    document: dict[str, Any] = {"a": changes(Setting(), state.a)}
    if state.b is not None:
        document["b"] = changes(state.a, state.b)
        document["compare"] = state.compare
    if view := changes(View(), state.view):
        document["view"] = view
    return urlencode({KEY: json.dumps(document, separators=(",", ":"))})


def link(state: State) -> str:
    """The query that brings a state back, or nothing where its classes are too long for one."""
    if len(state.a.written or "") > MOST_LINKED:  # what is encoded is longer still
        return ""
    query = to_query(state)
    return query if len(query) <= MOST_LINKED else ""


def from_query(query: str) -> State:
    """The state of a URL's query, checked field by field; the default where there is none."""
    found = parse_qs(query.removeprefix("?")).get(KEY)
    if found is None:
        return State()
    try:
        document = parse_document(found[-1], suffix=".json", advice=ADVICE)
        check_keys("", document, ("a", "b", "compare", "view"), needed=())
        # a recipe may stand in a file that is named in its place, which a link must not reach
        for part in ("a", "b", "view"):
            if not isinstance(document.get(part, {}), dict):
                raise InputError(f"{part}: expected a mapping, got {shown(document[part])}")
        a = document.get("a", {})
        return State(
            as_recipe(a, Setting),
            as_recipe({**a, **document["b"]}, Setting) if "b" in document else None,
            str(document.get("compare", "")),
            as_recipe(document.get("view", {}), View),
        )
    except InputError as error:
        raise InputError(f"link: {error}; {ADVICE}") from error

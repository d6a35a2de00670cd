"""Documents: strict YAML and JSON, and messages that say what is wrong in them.

YAML is read by version 1.2, in which `no` is a word, and no key may be given twice.
"""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from attnlab.files.errors import InputError, visible
from attnlab.files.regular import read_regular
from attnlab.files.shipped import here_or_shipped

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BYTES = 256_000_000
MAX_DEPTH = 20  # no document of ours needs more than a handful
MAX_ALIASED = 1_000_000
LONGEST_KEY, LONGEST_MESSAGE = 60, 200  # characters that are shown

Parsers = Mapping[str, Callable[[str], Any]]  # by the ending of a file

# The scalars of YAML 1.2. PyYAML follows 1.1, where the words no, on and yes are booleans, 12:30 is
# a number and 1e-3 is not.
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": re.compile(r"null|Null|NULL|~|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"0|-?[1-9][0-9]*"),
    "float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}


def read_document(path: Path, *, noun: str, advice: str, others: Parsers | None = None) -> Any:
    """Return the values in a .yaml, .yml or .json file of `noun`; None if it is empty.

    `advice` ends the messages about a file that is too large or too deep. `others` parse files of
    other endings.
    """
    others = others or {}
    suffix = document_suffix(path, noun=noun, others=others)
    text = _read_text(path, advice)
    try:
        if suffix in others:
            return others[suffix](text)
        return parse_document(text, suffix=suffix, advice=advice)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


@cache
def texts_of(module: str) -> dict[str, Any]:
    """Return the content of the YAML file beside a module (its `__file__`); {} without one."""
    path = Path(module).with_suffix(".yaml")
    advice = "leave some texts out"
    return read_document(path, noun="texts", advice=advice) or {} if path.is_file() else {}


def parse_document(text: str, *, suffix: str, advice: str) -> Any:
    """Return the values in the text of a document; None if it is empty. `suffix` is its format."""
    try:
        return _parse_json(text) if suffix == ".json" else _parse_yaml(text)
    except RecursionError:
        raise InputError(f"nested too deeply; {advice}") from None


def document_suffix(path: Path, *, noun: str, others: Iterable[str] = ()) -> str:
    """Return the suffix of a file of `noun`; refuse one that cannot be read and written."""
    suffix = path.suffix.lower()
    known = (*SUFFIXES, *others)
    if suffix not in known:
        raise InputError(f"{path}: files of {noun} end in {', '.join(known)}")
    return suffix


def check_keys(where: str, item: Any, known: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse what is not a mapping, an unknown key (with the nearest known one), a missing key."""
    if not isinstance(item, dict):
        place = f"{where}: expected" if where else "expected"
        keys = ", ".join(needed) or f"any of {', '.join(known)}"
        raise InputError(f"{place} a mapping with {keys}, got {shown(item)}")
    for key in item:
        if key not in known:
            raise InputError(f"{within(where, key)}: unknown key; {did_you_mean(key, known)}")
    for key in needed:
        if key not in item:
            raise InputError(f"{within(where, key)}: missing")


def within(where: str, key: object) -> str:
    """Return the path of a key for an error message: `task.length`.

    A long key is cut, and control characters are escaped.
    """
    name = visible(str(_brief(key)))
    return f"{where}.{name}" if where else name


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the nearest known word and the whole list, as the end of an error message."""
    known = list(dict.fromkeys(known))
    near = nearest(word, known)
    listing = f"known: {', '.join(known)}"
    return f"did you mean {near[0]!r}? ({listing})" if near else listing


def nearest(word: object, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known words that are similar to a word, ignoring case, the nearest first."""
    by_text = {of.lower(): of for of in known}
    return [by_text[of] for of in difflib.get_close_matches(str(word).lower(), by_text, n=most)]


def shown(value: Any) -> str:
    """Return a value for an error message: shortened, and a collection as its kind."""
    if isinstance(value, (dict, list)):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return "nothing" if value is None else reprlib.repr(value)


def _brief(key: Any, most: int = LONGEST_KEY) -> Any:
    """Cut a key, or another text of an error message, to at most `most` characters."""
    return f"{key[:most]}..." if isinstance(key, str) and len(key) > most else key


def _read_text(path: Path, advice: str) -> str:
    try:
        data = read_regular(here_or_shipped(path), most=MAX_BYTES, advice=advice)
    except OSError as error:
        raise InputError(str(error)) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        words = f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise InputError(words) from error


def _parse_json(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeats, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise InputError(f"invalid JSON: {error}") from error


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(f"key {_brief(repeated)!r} is given twice")
    return mapping


def dump_json(document: dict[str, Any]) -> str:
    """Return a document as JSON text."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _parse_yaml(text: str) -> Any:
    import yaml

    loader = _yaml_loader()
    try:
        # The C parser builds nested values by recursion and would overflow the stack; its stream
        # of events does not, and costs little.
        _check_extent(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    # PyYAML's own parser takes \\UFFFFFFFF for a character
    except (yaml.YAMLError, OverflowError) as error:
        line, words = _fault(error, text)
        if not isinstance(error, yaml.constructor.ConstructorError):
            words += "; check the indentation, colons, brackets and quotes there"
        raise InputError(f"invalid YAML: line {line}: {words}") from error


def _fault(error: Any, text: str) -> tuple[int, str]:
    """Return the line that a parser's error names, and its message.

    A bracket that is not closed is noticed at the end: the message names its own line as well.
    """
    import yaml

    if isinstance(error, yaml.MarkedYAMLError):
        since = "" if error.context_mark is None else f" (line {error.context_mark.line + 1})"
        context = f"{error.context}{since}, " if error.context else ""
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        return line, _brief(f"{context}{error.problem}", most=LONGEST_MESSAGE)
    if found := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        return line, f"the character U+{ord(found[0]):04X} is not allowed"
    return 1, str(error)


def _check_extent(events: Iterable[Any]) -> None:
    """Refuse what is nested too deeply, and aliases that stand for more than a file would hold."""
    import yaml

    # of the collections that are open; an alias counts as much as what it stands for
    sizes: list[int] = [1]
    anchors: list[str | None] = [None]
    of_anchor: dict[str | None, int] = {}
    borrowed = 0
    for event in events:
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            anchors.append(event.anchor)
            if len(sizes) > MAX_DEPTH + 1:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            size = sizes.pop()
            of_anchor[anchors.pop()] = size
            sizes[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            size = of_anchor.get(event.anchor, 1)
            sizes[-1] += size
            borrowed += size
            if borrowed > MAX_ALIASED:
                raise InputError(
                    f"its aliases stand for more than {MAX_ALIASED:,} values; write the values out"
                )
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1


@cache
def _yaml_loader() -> Any:
    """Return PyYAML's safe loader with the scalars of YAML 1.2; it refuses repeated keys."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        yaml_implicit_resolvers: ClassVar[dict[str | None, Any]] = {}
        yaml_constructors: ClassVar[dict[str | None, Any]] = {
            tag: construct
            for tag, construct in yaml.SafeLoader.yaml_constructors.items()
            if tag in (None, f"{_TAG}str", f"{_TAG}seq", f"{_TAG}map")
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            found = dict(super().construct_mapping(node, deep))
            seen = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if key in seen:
                    raise refused(f"key {_brief(key)!r} is given twice", key_node)
                seen.add(key)
            return found

    def refused(words: str, node: Any) -> Exception:
        return yaml.constructor.ConstructorError(problem=words, problem_mark=node.start_mark)

    def scalar(loader: Any, node: Any) -> Any:
        kind = node.tag.removeprefix(_TAG)
        text = loader.construct_scalar(node)
        if not _SCALARS[kind].fullmatch(text):
            raise refused(f"{shown(text)} is not of type {kind}", node)
        try:
            return _SCALAR_VALUES[kind](text)
        except ValueError as error:
            raise refused(str(error), node) from None

    for kind, pattern in _SCALARS.items():
        Loader.add_implicit_resolver(f"{_TAG}{kind}", re.compile(f"(?:{pattern.pattern})$"), None)
        Loader.add_constructor(f"{_TAG}{kind}", scalar)
    return Loader


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # Python does not convert numbers of thousands of digits
        raise InputError(f"a whole number of {len(text)} digits") from None


_SCALAR_VALUES: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": _whole,
    "float": lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower())),
}


def dump_yaml(document: dict[str, Any]) -> str:
    """Return a document as YAML text with the same meaning in versions 1.1 and 1.2."""
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):
        """Dumper that quotes texts which either version of YAML reads as another type."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, data: str) -> Any:
        # Other styles fold line breaks, and PyYAML's own emitter loses the rarer ones.
        style = None if data.isprintable() else '"'
        return dumper.represent_scalar(f"{_TAG}str", data, style=style)

    Dumper.add_representer(str, text)
    for kind, pattern in _SCALARS.items():
        Dumper.add_implicit_resolver(f"{_TAG}{kind}", re.compile(f"(?:{pattern.pattern})$"), None)
    layout: dict[str, Any] = dict(
        sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    return str(yaml.dump(document, Dumper=Dumper, **layout))

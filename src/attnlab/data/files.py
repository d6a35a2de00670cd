"""Sequence classes in YAML and JSON files. The schema is in docs/sequence-classes.md.

A token is written as its name or its id. A reference that is one of the names is that name, even
where YAML reads it as a number (the word ``1987``); otherwise a whole number is an id, also in
quotes, since JSON has no other keys. A vocabulary in which some names are numbers takes no ids,
because a reader could not tell them apart.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import reprlib
import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnlab.data.classes import SUM_TOLERANCE, SequenceClasses

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BYTES = 256 * 2**20
MAX_DEPTH = 20  # the schema needs 4
# Token ids are 32-bit on an accelerator.
MAX_VOCABULARY = 2**31 - 1

_FILE_KEYS = ("vocabulary", "normalize", "classes")
_CLASS_KEYS = ("query", "next", "prior", "probs")

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
_ID = re.compile(r"0|[1-9][0-9]*")


def read_classes(path: str | os.PathLike[str]) -> SequenceClasses:
    """Read sequence classes from a .yaml, .yml or .json file; its path becomes their origin."""
    path = Path(path)
    suffix = _suffix(path)
    text = _read_text(path)
    try:
        document = _parse_json(text) if suffix == ".json" else _parse_yaml(text)
        return _build(document, origin=str(path))
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply; see docs/sequence-classes.md") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def write_classes(classes: SequenceClasses, path: str | os.PathLike[str]) -> None:
    """Write sequence classes to a .yaml, .yml or .json file, so that reading gives equal ones.

    Probabilities keep every bit. The file appears complete or not at all.
    """
    path = Path(path)
    suffix = _suffix(path)
    document = _document(classes)
    text = _dump_json(document) if suffix == ".json" else _dump_yaml(document)
    if len(data := text.encode()) > MAX_BYTES:
        raise ValueError(
            f"{path}: would be {len(data) / 2**20:.0f} MiB, more than the {MAX_BYTES // 2**20} MiB "
            "that can be read back; make such classes in Python"
        )
    # Opened by name, not by tempfile, so that the file gets the permissions of any new file.
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(scratch, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        scratch.unlink(missing_ok=True)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The nearest known word and the whole list, as the end of an error message."""
    known = list(known)
    near = difflib.get_close_matches(str(word), known, n=1)
    listing = f"known: {', '.join(known)}"
    return f"did you mean {near[0]!r}? ({listing})" if near else listing


# -- from a document to classes -----------------------------------------------------------------


def _build(document: Any, origin: str) -> SequenceClasses:
    if document is None:
        raise ValueError("the file is empty; it needs the keys vocabulary and classes")
    _check_mapping("", document, known=_FILE_KEYS, needed=("vocabulary", "classes"))
    vocabulary = _Vocabulary(document["vocabulary"])
    normalize = document.get("normalize", False)
    if not isinstance(normalize, bool):
        raise ValueError(f"normalize: expected true or false, got {normalize!r}")
    items = document["classes"]
    if not isinstance(items, list) or not items:
        raise ValueError(f"classes: expected a list of at least one class, got {_shown(items)}")

    query, next_token, rows = [], [], []
    for k, item in enumerate(items):
        where = f"classes[{k}]"
        _check_mapping(where, item, known=_CLASS_KEYS, needed=("query", "next", "probs"))
        query.append(vocabulary.token(f"{where}.query", item["query"]))
        next_token.append(vocabulary.token(f"{where}.next", item["next"]))
        rows.append(_row(f"{where}.probs", item["probs"], vocabulary, normalize))
    return SequenceClasses(
        probs=rows,
        query=query,
        next_token=next_token,
        prior=_prior(items, normalize),
        vocab_size=vocabulary.size,
        names=vocabulary.names,
        origin=origin,
    )


class _Vocabulary:
    """The tokens of a file: how many, their names if any, and what a reference stands for."""

    def __init__(self, vocabulary: Any) -> None:
        self.names: list[str] | None = None
        if isinstance(vocabulary, list):
            if not vocabulary:
                raise ValueError("vocabulary: empty; give at least one token name")
            self.names = [_name(f"vocabulary[{i}]", name) for i, name in enumerate(vocabulary)]
            self.size = len(self.names)
        elif _is_whole(vocabulary) and 1 <= vocabulary <= MAX_VOCABULARY:
            self.size = vocabulary
        else:
            raise ValueError(
                f"vocabulary: expected a list of token names or a size from 1 to {MAX_VOCABULARY}, "
                f"got {_shown(vocabulary)}"
            )
        self._ids: dict[str, int] = {}
        for i, name in enumerate(self.names or ()):
            if self._ids.setdefault(name, i) != i:
                raise ValueError(f"vocabulary[{i}]: {name!r} is listed twice")
        self._number_name = next((name for name in self._ids if _ID.fullmatch(name)), None)

    def token(self, where: str, reference: Any) -> int:
        """The id of a token given by name or id."""
        if not isinstance(reference, str) and not _is_whole(reference):
            raise ValueError(f"{where}: expected a token name or id, got {_quoted(reference)}")
        name = str(reference)
        if name in self._ids:
            return self._ids[name]
        if _is_whole(reference) or _ID.fullmatch(reference):
            if self._number_name is not None:
                raise ValueError(
                    f"{where}: no token is named {name!r}, and ids are refused where names are "
                    f"numbers (here {self._number_name!r}); give the name"
                )
            if not 0 <= (token := int(reference)) < self.size:
                raise ValueError(f"{where}: token id {token} is outside 0..{self.size - 1}")
            return token
        if self.names is None:
            raise ValueError(
                f"{where}: {name!r} is not a token id; list the names under vocabulary to use them"
            )
        near = difflib.get_close_matches(name, self.names[:10_000], n=1)
        hint = f"did you mean {near[0]!r}?" if near else "add it to the vocabulary"
        raise ValueError(f"{where}: no token is named {name!r}; {hint}")


def _row(where: str, probs: Any, vocabulary: _Vocabulary, normalize: bool) -> dict[int, float]:
    if not isinstance(probs, dict) or not probs:
        raise ValueError(
            f"{where}: expected a mapping of at least one token to its probability, "
            f"got {_shown(probs)}"
        )
    row: dict[int, float] = {}
    for reference, value in probs.items():
        here = f"{where}.{reference}"
        token = vocabulary.token(here, reference)
        if token in row:
            raise ValueError(f"{here}: token {token} is listed twice, by name and by id")
        row[token] = _weight(here, value)
    total = _total(row.values())
    if normalize:
        _check_total(where, total)
        return {token: value / total for token, value in row.items()}
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"{where}: sums to {total:.9g}; it must sum to 1 "
            "(or set `normalize: true` at the top of the file)"
        )
    return row


def _prior(items: list[dict[str, Any]], normalize: bool) -> list[float] | None:
    given = ["prior" in item for item in items]
    if not any(given):
        return None
    if not all(given):
        k = given.index(False)
        raise ValueError(f"classes[{k}].prior: missing; give a prior to every class or to none")
    prior = [_weight(f"classes[{k}].prior", item["prior"]) for k, item in enumerate(items)]
    total = _total(prior)
    if normalize:
        _check_total("classes[*].prior", total)
        return [value / total for value in prior]
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"classes[*].prior: the priors sum to {total:.9g}; they must sum to 1 "
            "(or set `normalize: true` at the top of the file)"
        )
    return prior


def _check_mapping(where: str, item: Any, known: tuple[str, ...], needed: tuple[str, ...]) -> None:
    if not isinstance(item, dict):
        place = f"{where}: expected" if where else "expected"
        raise ValueError(f"{place} a mapping with {', '.join(needed)}, got {_shown(item)}")
    prefix = f"{where}." if where else ""
    for key in item:
        if key not in known:
            raise ValueError(f"{prefix}{key}: unknown key; {did_you_mean(key, known)}")
    for key in needed:
        if key not in item:
            raise ValueError(f"{prefix}{key}: missing")


def _total(weights: Iterable[float]) -> float:
    try:
        return math.fsum(weights)
    except OverflowError:
        return math.inf


def _check_total(where: str, total: float) -> None:
    if not 0 < total < math.inf:
        raise ValueError(f"{where}: the weights sum to {total}, which cannot be normalised")


def _weight(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{where}: expected a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        raise ValueError(f"{where}: expected a finite number of at least 0, got {number}")
    return number


def _name(where: str, name: Any) -> str:
    if not isinstance(name, str) and not _is_whole(name):
        raise ValueError(f"{where}: expected a token name, got {_quoted(name)}")
    return str(name)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return "nothing" if value is None else reprlib.repr(value)


def _quoted(value: Any) -> str:
    if value is None or isinstance(value, (bool, float)):
        return f"{json.dumps(value)}; if that is a name, put it in quotes"
    return _shown(value)


# -- from text to a document and back -----------------------------------------------------------


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: files of sequence classes end in {', '.join(SUFFIXES)}")
    return suffix


def _read_text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{path}: not a file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(
            f"{path}: larger than {MAX_BYTES // 2**20} MiB; make such classes in Python"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    return text


def _parse_json(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: line {error.lineno}: {error.msg}") from error


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {repeated!r} is given twice")
    return mapping


def _dump_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _parse_yaml(text: str) -> Any:
    import yaml

    loader = _yaml_loader()
    try:
        # The C parser builds nested values by recursion and would overflow the stack; its stream
        # of events does not, and costs little.
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise RecursionError
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"invalid YAML: {place}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"invalid YAML: {str(error).splitlines()[0]}") from error


@cache
def _yaml_loader() -> Any:
    """PyYAML's safe loader with the scalars of YAML 1.2, and no key twice."""
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
            seen = set()
            for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    continue  # refused below, by PyYAML
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
            return dict(super().construct_mapping(node, deep))

    def scalar(loader: Any, node: Any) -> Any:
        kind = node.tag.removeprefix(_TAG)
        text = loader.construct_scalar(node)
        if not _SCALARS[kind].fullmatch(text):
            raise yaml.constructor.ConstructorError(
                None, None, f"{text!r} is not of type {kind}", node.start_mark
            )
        return _SCALAR_VALUES[kind](text)

    for kind, pattern in _SCALARS.items():
        Loader.add_implicit_resolver(f"{_TAG}{kind}", re.compile(f"(?:{pattern.pattern})$"), None)
        Loader.add_constructor(f"{_TAG}{kind}", scalar)
    return Loader


_SCALAR_VALUES: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": int,
    "float": lambda text: float(re.sub(r"\.(?=inf|nan)", "", text.lower())),
}


def _dump_yaml(document: dict[str, Any]) -> str:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):
        """Quotes what either version of YAML would not read as a word."""

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


def _document(classes: SequenceClasses) -> dict[str, Any]:
    names = classes.names
    if names is not None:
        if len(set(names)) < len(names):
            (repeated, _), *_ = Counter(names).most_common(1)
            raise ValueError(f"names: {repeated!r} names two tokens; a file needs unique names")
        for name in names:
            try:
                name.encode()
            except UnicodeEncodeError:
                raise ValueError(f"names: {name!r} is not valid Unicode text") from None
    label: Any = range(classes.vocab_size) if names is None else names
    uniform = np.all(classes.prior == 1.0 / classes.num_classes)
    items = []
    for k in range(classes.num_classes):
        item = {
            "query": label[int(classes.query[k])],
            "next": label[int(classes.next_token[k])],
        }
        if not uniform:
            item["prior"] = float(classes.prior[k])
        support, values = classes.support(k).tolist(), classes.probabilities(k).tolist()
        item["probs"] = {label[token]: value for token, value in zip(support, values, strict=True)}
        items.append(item)
    return {
        "vocabulary": classes.vocab_size if names is None else list(names),
        "classes": items,
    }

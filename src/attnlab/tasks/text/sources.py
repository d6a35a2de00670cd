"""Sources of text: the documentation of Python itself, files and folders, WikiText."""

import codecs
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from attnlab.files.errors import InputError, not_installed
from attnlab.files.memory import machine_memory
from attnlab.files.regular import read_regular

WIKITEXT = {"wikitext-2": "wikitext-2-v1", "wikitext-103": "wikitext-103-v1"}
WIKITEXT_AT_THE_HUB = "Salesforce/wikitext"
HUB_PATIENCE = 10.0  # seconds for the first answer
HELD_OUT = 0.1  # of a text without a validation part of its own
_TRAIN = ("train.txt", "wiki.train.tokens", "wiki.train.raw")
_VALIDATION = (
    "valid.txt",
    "validation.txt",
    "wiki.valid.tokens",
    "wiki.valid.raw",
    "test.txt",
    "wiki.test.tokens",
    "wiki.test.raw",
)
_CHOICES = f"give builtin, {', '.join(WIKITEXT)}, or a file or folder that is there"


@dataclass(frozen=True)
class RawText:
    """A text in two parts, for training and for validation."""

    name: str
    train: str
    validation: str


def read_source(source: str | Path, validation: str | Path | None = None) -> RawText:
    """Return the text of "builtin", a file, a folder, or else "wikitext-2" or "wikitext-103".

    A folder that is split into files (train.txt and valid.txt, or wiki.train.tokens and so on) is
    read so; of any other folder, all .txt files in alphabetical order are one text. A text without
    a validation part gives up its last tenth. `validation` names a file to use instead.
    """
    if source == "builtin":
        name, train, held = "builtin", builtin_text(), None
    elif source == "":
        raise InputError(f"corpus: no name; {_CHOICES}")
    elif (path := Path(source)).is_dir():
        name, (train, held) = path.resolve().name, _read_folder(path)
    elif isinstance(source, str) and source in WIKITEXT:
        name, (train, held) = source, _download(source)
    elif path.exists():
        name, train, held = path.name, read_text(path), None
    else:
        raise FileNotFoundError(f"{source}: no such corpus; {_CHOICES}")
    if validation is not None:
        try:
            held = read_text(Path(validation))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"validation: {validation} is not a file; give a text file"
            ) from None
    if held is None:
        train, held = _hold_out(train)
    return RawText(name, train, held)


def read_text(path: Path) -> str:
    """Read a UTF-8 file that is not empty."""
    # characters take up to four times the room of bytes, and lists of tokens more
    data = read_regular(path, most=machine_memory() // 16, advice="give a part of it")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data:
        raise InputError(
            f"{path}: not UTF-8 text, but UTF-16 or no text at all; convert a text with "
            "iconv -f UTF-16 -t UTF-8"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 text at byte {error.start} (0x{data[error.start]:02x}); "
            "convert it, for example with iconv -f LATIN1 -t UTF-8"
        ) from None
    if not text.strip():
        raise InputError(f"{path}: empty; give a file with text in it")
    return text.removeprefix("\ufeff")  # some editors begin a file with a byte order mark


def builtin_text() -> str:
    """Return the documentation topics of the standard library, as plain paragraphs.

    Topics quote each other, so a paragraph is kept where it comes first only: else a validation
    part would have been learnt by heart. The text differs a little between versions of Python.
    """
    from pydoc_data.topics import topics

    paragraphs: dict[str, None] = {}  # a dict keeps the order in which its keys came
    for name in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[name]):
            plain = _without_markup(paragraph)
            if plain:
                paragraphs[plain] = None
    return "\n".join(paragraphs)


def _without_markup(paragraph: str) -> str:
    rules = r"\s*(([*=\-~^])\2+|[+|][-=+|\s]*)"  # under a title; between the rows of a table
    lines = [line for line in paragraph.splitlines() if not re.fullmatch(rules, line)]
    rows = [re.fullmatch(r"\s*\|(.*)\|\s*", line) for line in lines]  # of a table
    lines = [
        row[1].replace(" | ", " ") if row else line for row, line in zip(rows, lines, strict=True)
    ]
    text = " ".join(" ".join(lines).split())
    text = re.sub(r"(\w-) (?=[a-z])", r"\1", text)  # a word that was broken at its hyphen
    text = re.sub(r"(\*\*?)(\w[^*]*)\1", r"\2", text)  # *emphasis* and **strong**
    return text.translate(str.maketrans("‘’“”", "''\"\""))


def _hold_out(text: str) -> tuple[str, str]:
    """Cut a text at the line's end, or else the space, nearest to its last tenth."""
    goal = round(len(text) * (1 - HELD_OUT))
    cut = text.rfind("\n", len(text) // 2, goal)
    if cut < 0:
        cut = text.rfind(" ", 0, goal)
    if cut < 0:
        raise InputError("corpus: too short to hold a tenth out; give a validation file as well")
    return text[:cut], text[cut:]


def _read_folder(folder: Path) -> tuple[str, str | None]:
    train = _first_of(folder, _TRAIN)
    held = _first_of(folder, _VALIDATION)
    if train is not None:
        return read_text(train), None if held is None else read_text(held)
    if held is not None:
        raise InputError(
            f"{folder}: has {held.name} but no {' or '.join(_TRAIN)}; name the file to learn from "
            "and the one to judge by (validation)"
        )
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise InputError(f"{folder}: no .txt file in it; give a folder of text files")
    return "\n".join(read_text(path) for path in files), None


def _first_of(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _download(name: str) -> tuple[str, str]:
    remedy = (
        f"put its files wiki.train.tokens and wiki.valid.tokens in a folder and name that "
        f"folder instead of {name}"
    )
    try:
        import datasets
    except ImportError:
        raise not_installed(name, "datasets", extra="text", or_else=f"; or {remedy}") from None
    # The errors of an absent network have no common base among the libraries below.
    try:
        with _no_retries_offline():
            parts = datasets.load_dataset(WIKITEXT_AT_THE_HUB, WIKITEXT[name])
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{name}: could not be downloaded ({reason[0]}); {remedy}") from error
    return "".join(parts["train"]["text"]), "".join(parts["validation"]["text"])


@contextmanager
def _no_retries_offline() -> Iterator[None]:
    """Let the hub's library use its cache alone if the hub does not answer.

    It would try again for half a minute before it does.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    before = constants.HF_HUB_OFFLINE
    try:
        HfApi().dataset_info(WIKITEXT_AT_THE_HUB, timeout=HUB_PATIENCE)
    except HfHubHTTPError:
        pass  # an answer, even if an error: the next request gets it and reports it
    except Exception:
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before

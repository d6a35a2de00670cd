"""Files of classes in the page: it takes and refuses what the command line does."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import page_files
import pytest
from small_run import PATIENCE

from attnlab.files.errors import InputError
from attnlab.tasks.classes import read_classes
from attnlab.tasks.classes.class_files import classes_from_document

READ = """
async (files) => {
  const { readFile } = await import("/tables.js")
  const read = async ([name, data]) => {
    const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0))
    try { return { document: await readFile(name, bytes) } }
    catch (error) { return { said: error.name === "InputError" ? error.message : `a bug: ${error.stack}` } }
  }
  return Promise.all(files.map(read))
}
"""  # noqa: E501

YAML = """\
vocabulary: [the, in, hospital, 1987, votes, was, born, elected]
normalize: false
classes:
  - query: was
    next: born
    probs: {the: 0.4, in: 0.2, hospital: 0.1, 1987: 0.3}
  - query: was
    next: elected
    probs: {the: 0.4, "in": 0.2, votes: 0.4}
"""
JSON = """\
{"vocabulary": ["the", "in", "was", "a b", "born", "x"], "normalize": false,
 "classes": [
  {"query": "was", "next": "born", "probs": {"the": 0.5, "in": 0.5}},
  {"query": "was", "next": "x", "probs": {"the": 1e0}}]}
"""
TABLE = 'word,was → won,was → "c,d"\nthe,10,10\n"a ""b""",7,\nrain,,7.5\n'


def one(probs: str) -> str:
    return f"vocabulary: 3\nclasses: [{{query: 2, next: 1, probs: {{{probs}}}}}]"


BLOWN_UP = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 15)]
)
BAD_YAML = (
    # empty
    "",
    "# nothing\n",
    "null\n",
    "---\n",
    # tabs and other characters
    YAML.replace("    next: born", "\tnext: born"),
    "vocabulary: 3\n\tclasses: 1\n",
    "vocabulary:\t3\nclasses:\t[]\n",
    "vocabulary: \x07\n",
    "a: b\rc: [\r",
    # brackets
    YAML.replace("elected]", "elected"),
    YAML.replace("0.3}", "0.3"),
    YAML.replace("in, h", "in], h"),
    "vocabulary: 3\nclasses: ]\n",
    "vocabulary: [a, {b: 1], c}\n",
    "a: {x: 1}}\n",
    "a: [x]y\n",
    # quotes and escapes
    YAML.replace('"in"', '"in'),
    YAML.replace("votes,", "'votes,"),
    "vocabulary: 'don't'\n",
    'a: "x"y\n',
    'vocabulary: "\\q"\n',
    'vocabulary: "\\UFFFFFFFF"\n',
    # indentation and colons
    YAML.replace("    next: born", "   next: born"),
    YAML.replace("    next:", "      next:"),
    YAML.replace("next: born", "next born"),
    YAML.replace("classes:", "classes"),
    "a: b\n- c\n",
    "- a\nb: c\n",
    "vocabulary: a: b\n",
    "a: 1\n b: 2\n",
    "a:\n  b: 1\n c: 2\n",
    "key: - a\n",
    "vocabulary: {a: 1 b: 2}\n",
    "vocabulary: [a,, c]\n",
    "vocabulary: >\n  x\n bad\n",
    # keys
    YAML + "normalize: true\n",
    YAML.replace("in: 0.2, h", "the: 0.2, h"),
    "vocabulary: 3\n? [a]\n: 1\n",
    "{[a]: 1}",
    "{{a: b}: 1}",
    "vocabluary: 3\n",
    "1: 2\n",
    "true: 2\n",
    one("true: 1"),
    one("0.5: 1"),
    one("~: 1"),
    f"{'k' * 100}: 1\n",
    "<<: {a: 1}\n",
    # anchors, aliases and tags
    YAML.replace("the, in, h", "*the, in, h"),
    YAML.replace("the, in, h", "&the the, *the, h"),
    "a: * b\n",
    "a: & b\n",
    "vocabulary: &a [*a]\nclasses: []\n",
    "&a [*a]\n",
    BLOWN_UP,
    YAML.replace("the, in, h", "!the, in, h"),
    YAML.replace("the, in, h", "!!int the, in, h"),
    YAML.replace("false", "!!python/object:os.system x"),
    "!!seq {a: 1}",
    "!!map x",
    "vocabulary: !!str 5\nclasses: []",
    "vocabulary: @x\n",
    "vocabulary: `x\n",
    "vocabulary: %x\n",
    # several documents
    YAML + "---\n" + YAML,
    YAML + "...\n" + YAML,
    "--- {}\n--- {}\n",
    "%YAML 1.2\na: 1\n",
    # deep and long
    "[" * 1000,
    "- " * 1000,
    "[" * 21 + "]" * 21,
    "[" * 20 + "]" * 20,
    f"vocabulary: 1{'0' * 5000}\n",
    f"vocabulary: [{'x' * 100}]\nclasses: [{{query: {'y' * 100}, next: 0, probs: {{0: 1}}}}]\n",
    f"vocabulary: {'long ' * 20}\nclasses: []\n",
    # values
    "text\n",
    "a\nb\n",
    "vocabulary: 5.0\nclasses: [1]\n",
    "vocabulary: 1e3\nclasses: []\n",
    "vocabulary: 12:30\nclasses: []\n",
    one("0: -1"),
    one("0: .nan"),
    one("0: -.inf"),
    one("0: 1e-5"),
    "vocabulary: 3\nnormalize: true\nclasses: [{query: 2, next: 1, probs: {0: 0}}]",
    "vocabulary: 3\nnormalize:\nclasses: []\n",
    YAML.replace("votes: 0.4", "vote: 0.4"),
    YAML.replace("next: elected", "next: born"),
    'vocabulary: ["a\\nb"]\nclasses: [{query: "a\\tb", next: 0, probs: {0: 1}}]\n',
    "vocabulary: [don't, say]\nclasses: [{query: can't, next: 0, probs: {0: 1}}]\n",
)
BAD_JSON = (
    "",
    '{"vocabulary": 3,\n "classes"}',
    '{"vocabulary": 3, "vocabulary": 4}',
    "[" * 100_000,
    "1" * 5000,
    '{"a": 1,}',
    '{"a" 1}',
    "{'a': 1}",
    '{"a": "x\ny"}',
    '{"a": "x',
    '{"a": "\\q"}',
    '{"a": "\\u12"}',
    "{} {}",
    "nul",
    "-",
    '{"a": 01}',
    '{"vocabulary": 3.0, "classes": []}',
    '{"vocabulary": 3, "classes": [{"query": 1, "next": 2, "probs": {"0": NaN}}]}',
    '{"vocabulary": ["\\ud800"], "classes": []}',
    '{"__proto__": 1}',
)
BAD_TABLES = (
    "",
    "word\n",
    "word,b\n",
    "word,b\nx,1,2\n",
    "word,b\n,1\n",
    "word,b\nx,1\nx,2\n",
    "word,b\nx,abc\n",
    "word,b\nx,-1\n",
    "word,b\nx,inf\n",
    "word,b\nx,1e400\n",
    "word,b\nx,1_0\n",
    'word,b\n"x,1\n',
    'word,b\n"x"y,1\n',
    '"wo\nrd",a\nx,y\n',
    "word,a\nx,0\n",
    "word,a,a\nx,1,2\n",
)
NOT_TEXT = (b"vocabulary: [caf\xe9]", b"\xef\xbb\xbfab\xe2\x28", b"ab\xe2\x82", b"\xff\xfea\x00")
# what a person needs to know: the file, the line or the field, and the cause
SAID = {
    "mine.yaml: invalid YAML: line 10: duplicated mapping key",
    "mine.yaml: not UTF-8 text; save it as UTF-8",
    "mine.yaml: classes[0].probs.0: expected a finite number of at least 0, got -1",
    "mine.json: invalid JSON: line 1: duplicated mapping key",
    "mine.csv: table: line 2: a row without a word; its first cell is the word",
    "mine.txt: files of sequence classes end in .yaml, .yml, .json, .csv",
}


def mutated(text: str, signs: str, count: int) -> list[str]:
    """Texts with a few signs more, fewer or other than this one."""
    choose = random.Random(5)
    found = []
    for _ in range(count):
        changed = list(text)
        for _ in range(choose.randint(1, 3)):
            at = choose.randrange(len(changed))
            changed[at : at + choose.randint(0, 1)] = choose.choice(("", choose.choice(signs)))
        found.append("".join(changed))
    return found


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page that has loaded nothing but may import every module."""
    with page_files.served() as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.route("**/blank", lambda route: route.fulfill(body="<p>", content_type="text/html"))
        page.goto(f"{address}/blank")
        yield page
        page.close()


def read(page: Any, files: list[tuple[str, bytes]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate(
        READ, [(name, base64.b64encode(data).decode()) for name, data in files]
    )
    return found


@pytest.mark.slow
def test_the_page_reads_files_as_the_command_line_does(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "mine.yaml": (YAML, *BAD_YAML),
        "mine.json": (JSON, *BAD_JSON, *mutated(JSON, ' \n:-[]{},"\\a1.eu', 200)),
        "mine.csv": (TABLE, *BAD_TABLES, *mutated(TABLE, ' \n;,"a1.-→', 200)),
        "mine.txt": ("word,b\nx,1\n",),
    }
    files = [(name, text.encode()) for name, group in texts.items() for text in group]
    files += [("mine.yaml", data) for data in NOT_TEXT]
    said = set()
    for (name, data), found in zip(files, read(page, files), strict=True):
        Path(name).write_bytes(data)
        try:
            classes = read_classes(name)
        except InputError:
            assert found.get("said", "").startswith(f"{name}: "), (data[:300], found)
            said.add(found["said"])
        else:
            assert classes_from_document(found.get("document")) == classes, (data, found)
    assert said >= SAID
    assert any(words.startswith("mine.yaml: invalid YAML: line 5: ") for words in said)
    assert any(words.startswith("mine.json: invalid JSON: ") for words in said)


def test_words_that_every_object_has_are_words(page: Any) -> None:
    names = ["__proto__", "constructor", "toString", "m", "n"]
    table = 'word,m → n,m → m\n__proto__,1,\nconstructor,1,1\n"toString",,2\n'
    (found,) = read(page, [("mine.csv", table.encode())])
    document = found["document"]
    assert document["vocabulary"] == names
    again = page.evaluate(
        """async (table) => {
          const { parseTable, toTable } = await import("/tables.js")
          return JSON.stringify(parseTable(toTable(parseTable(table))).classes)
        }""",
        table,
    )
    assert again == (
        '[{"query":"m","next":"n","probs":{"__proto__":1,"constructor":1}},'
        '{"query":"m","next":"m","probs":{"constructor":1,"toString":2}}]'
    )


def test_a_table_of_words_comes_back_as_it_went(page: Any) -> None:
    """Those of a text have signs that a table uses itself."""
    first, second = page.evaluate(
        """async () => {
          const { TEXT } = await import("/text.js")
          const { parseTable, toTable } = await import("/tables.js")
          const again = parseTable(toTable(TEXT))
          const probs = (of) => JSON.stringify(of.classes.map(({ query, next, probs }) => [query, next, probs]))
          return [probs(TEXT), probs(again)]
        }"""  # noqa: E501
    )
    assert first == second

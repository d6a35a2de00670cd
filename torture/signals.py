"""Ctrl-C and SIGTERM on every verb: it ends within three seconds, with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from torture.campaign import RIGHT, Campaign, Case, Verdict, bad
from torture.process import Process, start
from torture.verbs import CLASSES, SMALL, VERBS, prepare, wrong_end

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS = 3.0
LATEST = 6.0  # seconds after its start at which a verb is signalled
LATEST_OF = {"sweep, Ray": 15.0}  # whose cluster takes longer to start
INTERRUPTED = 130
MODEL = """
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
words = sorted(set(open("text.txt").read().split())) + ["[UNK]"]
known = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
known.pre_tokenizer = Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=known, unk_token="[UNK]")
sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 97}
for step in range(1, 9):
    place = f"models/checkpoint-{step}"
    GPT2LMHeadModel(GPT2Config(**sizes)).save_pretrained(place)
    tokenizer.save_pretrained(place)
"""
PROBE = ("--text", "{given}/text.txt", "--length", "32")
# What verbs read that others have made.
MADE: tuple[tuple[str, ...], ...] = (
    ("text", "train", "{given}/text.txt", "--out", "{given}/run", "--steps", "20", *SMALL),
    ("observe", "model", "{given}/models/checkpoint-1", *PROBE, "--out", "{given}/observed.nc"),
)
# Verbs that `torture.verbs` has not, or that are over there in less than a second.
MORE: dict[str, tuple[str, ...]] = {
    "predict": ("predict", CLASSES, "--motion", "flow", "--theory", "sgd", "--time", "1e30"),
    "audit, all": ("audit",),
    "audit, far": ("audit", CLASSES, "--eta-z", "1e300"),
    "play": ("play", CLASSES, "--port", "0", "--no-browser"),
    "cite": ("cite",),
    "sweep status": ("sweep", "status", "{out}"),
    "observe model": ("observe", "model", "{given}/models/checkpoint-1", *PROBE),
    "observe checkpoints": ("observe", "checkpoints", "{given}/models", *PROBE),
    "observe lint": ("observe", "lint", "{given}/models"),
    "observe report": ("observe", "report", "{given}/observed.nc", "--html", "{out}/page.html"),
    "text plot": ("text", "plot", "{given}/run", "--out", "{out}/run.png"),
    "text classes, longer": ("text", "classes", "builtin", "--out", "{out}/classes.yaml"),
    "text agreement, plot": (
        "text",
        "agreement",
        "builtin",
        "--steps",
        "2000",
        "--plot",
        "{out}/agreement.png",
    ),
    "docs": (),
}


class Signals(Campaign):
    name, share, cpu_seconds = "signals", 0.1, None  # it watches what it starts itself

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        prepare(folder)
        quiet = {"cwd": folder, "check": True, "capture_output": True}
        subprocess.run([sys.executable, "-c", MODEL], **quiet)  # type: ignore[call-overload]
        for words in MADE:
            argv = [sys.executable, "-m", "attnlab", *(word.format(given=folder) for word in words)]
            subprocess.run(argv, **quiet)  # type: ignore[call-overload]
        self.count = 0

    def cases(self, draw: Random) -> Iterator[Case]:
        """Every verb in turn, by both signals, at any time."""
        while True:
            for name in (*MORE, *VERBS):
                kind = draw.choice(("INT", "TERM"))
                latest = LATEST_OF.get(name, LATEST)
                yield Case(name, {"signal": kind, "at": draw.uniform(0.05, latest)})

    def judge(self, case: Case) -> Verdict:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        process = self._start(case.target, folder)
        try:
            codes = (0, 1, 2, 3) if case.target in MORE else VERBS[case.target].codes
            ended = process.wait(seconds=case.given["at"])
            if ended is not None:  # over before
                return RIGHT if ended.code in codes else bad(wrong_end(ended, codes))
            sent = time.monotonic()
            os.kill(process.pid, getattr(signal, f"SIG{case.given['signal']}"))
            ended = process.wait(seconds=MOST_SECONDS)
            if ended is None:
                return bad(f"went on for {MOST_SECONDS:g} s after SIG{case.given['signal']}")
            if problem := wrong_end(ended, (*codes, INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)):
                return bad(problem)
            while process.family.members():
                if time.monotonic() - sent > MOST_SECONDS:
                    return bad("left processes behind")
                time.sleep(0.05)
            return RIGHT
        finally:
            process.family.kill()

    def _start(self, name: str, folder: Path) -> Process:
        if name == "docs":
            make = str(ROOT / "docs" / "make.py")
            argv = ["--out", str(folder / "site")]
            return start(argv, folder, cold=True, command=(make,))
        argv = (
            list(MORE[name])
            if name in MORE
            else VERBS[name].words(self.folder, folder, longer=True)
        )
        return start(
            [word.format(given=self.folder, out=folder) for word in argv], folder, cold=True
        )

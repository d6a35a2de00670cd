"""`python -m benchmarks NAME [options]`; `python -m benchmarks` lists the names."""

import sys
from importlib import import_module

NAMES = {
    "fig6": "the whole Fig. 6 grid against a plain PyTorch loop (--no-torch leaves that out)",
    "published": "the 32 published cells of Fig. 6 with 40 seeds",
    "limit": "steps per second of the limit T to infinity on Syn-Small, one core",
    "vocabulary": "a million tokens: time and memory",
    "length": "a sampled step at T = 131,072 against one at T = 128",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        for known, what in NAMES.items():
            print(f"{known:12} {what}")
        sys.exit(0 if not name else 2)
    import_module(f"benchmarks.{name}").main(sys.argv[2:])


main()

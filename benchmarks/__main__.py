"""`python -m benchmarks NAME [options]`; `python -m benchmarks` lists the names."""

import sys
from importlib import import_module

NAMES = {
    "fig6": "the whole Fig. 6 grid against a plain PyTorch loop (--no-torch leaves that out)",
    "published": "the 64 published cells of Fig. 6 with 40 seeds",
    "limit": "steps per second of the limit T to infinity on Syn-Small, one core",
    "vocabulary": "a million tokens: time and memory",
    "play": "the playground in Chromium: first paint, from a slider to new bars; --opens 200",
    "pages": "static pages in Chromium: layout shift, size, contrast, as Lighthouse looks at them",
    "text": "tokens per second on text against a plain PyTorch loop; --runs, --sweep: many at once",
    "trainer": "a 2-layer attention-only transformer on Markov chains against a plain PyTorch loop",
    "accelerator": "first calls and steps of Fig. 6, text and chains on an accelerator, as JSON",
    "length": "a step on sequences of T = 131,072 tokens against one on T = 128",
    "sweep": "what a sweep adds to its simulations: 10,000 cells, run, resumed and opened",
    "ray": "a sweep on two Ray workers against one on two local processes",
    "joint": "a step of Joint against one of Pairwise, and a plain PyTorch loop (or --no-torch)",
    "variants": "a step of each model variant against one of the paper's model",
    "observe": "what observing costs beside a training, beside eager attention, and in memory",
    "record": "several of these as JSON for this commit, or against another commit",
    "architectures": "whether observe is right about every architecture of transformers; or NAMES",
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in NAMES:
        for known, what in NAMES.items():
            print(f"{known:14} {what}")
        sys.exit(0 if name in ("", "-h", "--help") else 2)
    import_module(f"benchmarks.{name}").main(sys.argv[2:])


main()

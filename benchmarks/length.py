"""Time of a step on sequences of T = 128 and of T = 131,072 tokens, on Syn-Small."""

from __future__ import annotations

import time

STEPS = 2_000


def main(arguments: list[str]) -> None:
    from attnlab import simulate

    def step_seconds(length: int) -> float:
        def run() -> float:
            begun = time.perf_counter()
            simulate(
                "syn-small",
                length=length,
                batch_size=128,
                eta_y=0.1,
                eta_z=0.1,
                steps=STEPS,
                momentum=0.0,
                what="loss",
                at=[STEPS],
                progress=False,
            )
            return time.perf_counter() - begun

        run()
        return min(run() for _ in range(3)) / STEPS

    short, long = step_seconds(128), step_seconds(131_072)
    print(f"T = 128: {short * 1e6:.0f} us a step; T = 131,072: {long * 1e6:.0f} us")
    print(f"ratio {long / short:.2f} (at most 4 wanted)")

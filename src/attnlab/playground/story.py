"""Story: what is happening in a run, in words, at each recorded moment.

Every word follows from a measure (`attnlab.measures.attention`): the speed of attention against its
peak, the attention to common tokens, and the token that is attended most.
"""

from __future__ import annotations

import numpy as np
import xarray as xr

from attnlab import measures
from attnlab.data import SequenceClasses
from attnlab.measures import roles

FROZEN = 0.02  # of the peak speed, as for `measures.snap_time`
MAIN = 0.25  # of all attention that moves: the common tokens' part in it is worth telling
ALL = 0.99  # of all attention: what the other tokens do in the rest is not worth telling
WINNING = 1.25  # times its share at the start


def tell(result: xr.Dataset, classes: SequenceClasses, *, first: int) -> list[str]:
    """A sentence or two for each moment of a run, about all classes and about class `first`."""
    clock = measures.clock_of(result)
    speed = measures.attention_speed(result).transpose(clock, "sequence_class").values
    moments = result[clock].values.astype(np.float64)
    moved = (speed * np.diff(moments)[:, None]).mean(1) / 2  # share of attention, per interval
    relative = _of_peak(speed)
    frozen = (relative < FROZEN) & (np.arange(relative.size) > speed.mean(1).argmax())
    common = measures.common_mass(result).mean("sequence_class").values
    shares = result["attention"].isel(sequence_class=first).transpose(clock, "token").values
    is_common = roles.is_common(result).values
    told = [f"Before training, attention follows P(l|n): {_percent(common[0])} on common tokens."]
    for i in range(1, moments.size):
        now = min(i, moved.size - 1)  # the interval that begins here; at the end, the last one
        change = common[now + 1] - common[now]
        if not speed.any():
            phase = "Attention does not move: nothing sets the classes against each other."
        elif relative[now] < FROZEN:
            quiet = "Attention is frozen" if frozen[now] else "Attention hardly moves yet"
            phase = f"{quiet}: its speed is {_percent(relative[now])} of its peak."
        elif min(common[0], common[i]) > ALL:
            phase = f"Common tokens compete: they have {_percent(common[i])} of attention."
        elif abs(change) < MAIN * moved[now]:
            phase = f"Distinct tokens compete; common tokens keep {_percent(common[i])}."
        else:
            verb = "being suppressed" if change < 0 else "gaining attention"
            phase = f"Common tokens are {verb}: {_percent(common[i])}, from {_percent(common[0])}."
        token = int(shares[i].argmax())
        share, start = shares[i, token], shares[0, token]
        if share >= WINNING * start:
            kind = "Common token" if is_common[token] else "Token"
            verb = "has won" if frozen[now] else "is winning"
            lead = (
                f"{kind} {classes.token_name(token)} {verb} in class {first}: {_percent(share)}, "
                f"from {_percent(start)}."
            )
        else:
            lead = f"No token stands out in class {first}."
        told.append(f"{phase} {lead}")
    return told


def _of_peak(speed: np.ndarray) -> np.ndarray:
    """The speed of the class that is furthest from rest, as a share of its own peak."""
    peak = speed.max(0)
    return np.asarray((speed[:, peak > 0] / peak[peak > 0]).max(1, initial=0.0))


def _percent(share: float) -> str:
    percent = 100 * float(share)
    if percent < 0.01:
        return "less than 0.01 %"
    return f"{percent:.0f} %" if percent >= 9.5 else f"{percent:.2g} %"

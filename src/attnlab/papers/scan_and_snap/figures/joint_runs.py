"""The joint dynamics behind Figs. 3, 8 and 9: what training does where theory makes a prediction.

The expected gradient flow of Lemma 1 for T to infinity, in which Y and Z move together, on classes
as in Section 6 (one query, one common token, equal classes). One unit of its time is one step of
the expected gradient, which is one batch-1 step of the theory in expectation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from attnlab.files.errors import InputError
from attnlab.files.progress import Progress
from attnlab.formulas import unit_attention
from attnlab.formulas.checks import FloatArray, IntArray
from attnlab.plots import style
from attnlab.simulation import simulate
from attnlab.tasks.classes import SequenceClasses, classes_from


@dataclass(frozen=True)
class Section6:
    """Classes as in Section 6, and what Theorem 4 needs to know of them.

    K, M: numbers of classes and of tokens. rho0 = 1 / f_nl of the common token at the start, the
    norm that Section 6 holds constant; C0 = rho0^4 / K (Eq. 13). tokens: in play, the common one
    first. distinct: the distinct tokens of class 0; dominant: the likeliest of them.
    """

    classes: SequenceClasses
    K: int
    M: int
    rho0: float
    C0: float
    P: FloatArray  # (class, token in play)
    tokens: IntArray
    distinct: IntArray
    dominant: int


def section_6(classes: str) -> Section6:
    """Make the classes and check that they are those of Section 6."""
    made = classes_from(classes)
    common = made.common_tokens()
    if made.queries.size != 1 or common.size != 1:
        raise InputError("classes: Section 6 is about one query and one common token")
    P = made.probs[:, made.in_play]
    f = unit_attention(made)[:, np.searchsorted(made.in_play, common[0])]
    if np.ptp(f) > 1e-12:
        raise InputError("classes: Section 6 assumes that all classes have the same norm")
    distinct = made.distinct_tokens(0)
    dominant = distinct[np.argmax(made.probs[0, distinct])]
    rho0 = float(1.0 / f[0])
    return Section6(
        classes=made,
        K=len(made),
        M=made.vocab_size,
        rho0=rho0,
        C0=rho0**4 / len(made),
        P=P,
        tokens=made.in_play,
        distinct=distinct,
        dominant=int(dominant),
    )


def train(
    setting: Section6, *, eta_y: Any, eta_z: Any, times: FloatArray, progress: Progress
) -> xr.Dataset:
    """Train the joint flow at all learning rates at once: attention logits and loss at `times`."""
    result = simulate(
        setting.classes,
        eta_y=eta_y,
        eta_z=eta_z,
        time=float(times[-1]),
        what=("logits", "loss"),
        at=times.tolist(),
        dtype="float64",
        progress=progress,
    )
    return result.isel(seed=0, query=0, drop=True).sel(token=setting.tokens)


def class_attention(setting: Section6, result: xr.Dataset) -> xr.Dataset:
    """Attention of class 0, as a dataset that `results.measures` reads."""
    p = result["probability"].isel(sequence_class=[0])
    weights = p * np.exp(result["attention_logits"])
    attention = weights / weights.sum("token")
    dims = (..., "time", "sequence_class", "token")
    return xr.Dataset({"attention": attention.transpose(*dims), "probability": p})


def draw_curves(ax: Any, curves: xr.Dataset, name: str, *, swept: str, label: str) -> None:
    """Draw `name` against time for each value of `swept`: t_0 dotted, the value there as a dot."""
    colours = style.ordered(curves.sizes[swept])
    for i, (colour, dash) in enumerate(zip(colours, style.DASHES, strict=False)):
        curve = curves.isel({swept: i})
        t0, text = float(curve["t0"]), f"{label} = {float(curve[swept]):g}"
        ax.plot(curve["time"], curve[name], color=colour, linestyle=dash, label=text)
        ax.axvline(t0, color=colour, linestyle=":", linewidth=1.0)
        if f"{name}_at_t0" in curves:
            ax.plot(t0, float(curve[f"{name}_at_t0"]), "o", color=colour, markersize=5)
    ax.margins(x=0)


def measured_growth_bound(setting: Section6, result: xr.Dataset, tokens: IntArray) -> xr.DataArray:
    """B_n(t) of class 0 as the logits of these distinct tokens show it.

    Under Eq. 10 the distinct tokens of a class grow by dz_l = f_nl^2 dB_n (Eq. 110), so that dB_n
    is the growth of any of them over the sum of their f_nl^2: that is summed along the records. In
    training they do not grow by f_nl^2, so that it depends on the tokens.
    """
    c = class_attention(setting, result)["attention"].isel(sequence_class=0)
    f2 = (c**2 / (c**2).sum("token")).sel(token=tokens).sum("token")
    grown = result["attention_logits"].sel(token=tokens).sum("token")
    middle = (f2 + f2.shift(time=-1)) / 2
    steps = grown.diff("time", label="lower") / middle.isel(time=slice(None, -1))
    total = steps.cumsum("time").pad(time=(1, 0), constant_values=0.0)
    return total.assign_coords(time=grown["time"]).rename("growth_bound")


def measured_h(setting: Section6, result: xr.Dataset) -> xr.DataArray:
    """h of training, read off the loss: the h at which Lemma 5's decoder has the same loss.

    There each class has logit (M - 1) h on its own next token and -h on every other, so that the
    loss is ln(1 + (M - 1) exp(-M h)).
    """
    loss = result["loss"]
    gap: xr.DataArray = np.log(setting.M - 1) - np.log(np.expm1(loss))
    return (gap / setting.M).rename("h")

"""Measures of a result: pure functions from the labelled schema to labelled arrays.

They read a simulation, a prediction or an observation alike, keep every other dim (`seed`,
`step` or `time`, swept rates) in its order, and compute in float64. A NaN that goes in comes out.
Token roles are counted over the classes in the dataset (`is_common`, `is_distinct`), so measure
first and select classes afterwards.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from attnlab.files.errors import InputError
from attnlab.measures import maps


def clock_of(record: xr.Dataset | xr.DataArray) -> str:
    """Return the dim along which a run was recorded: `step`, or `time` of the flow.

    Parameters
    ----------
    record : xarray.Dataset or xarray.DataArray
        A dataset, or a part of one.

    Returns
    -------
    str
        "step" or "time".
    """
    for clock in ("step", "time"):
        if clock in record.dims:
            return clock
    raise InputError(
        "step: no dim `step` or `time`; give the whole record, not a single step of it"
    )


def entropy(dataset: xr.Dataset) -> xr.DataArray:
    """Return the entropy of c_n in nats, -sum_l c_{l|n} log c_{l|n} (c of Eq. 5), per class.

    From `attention`; where only the statistic itself was recorded, that.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `simulate`, `predict` or an observer, with attention or what is measured of it.

    Returns
    -------
    xarray.DataArray
        For each class, and all other dims of the dataset.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab import measures
    >>> run = attnlab.simulate("syn-small", gradient="population", progress=False)
    >>> measures.entropy(run).isel(step=[0, -1], sequence_class=0).values.round(2)
    array([[2.9 , 2.78]])
    """
    if _only_recorded(dataset, "entropy"):
        return dataset["entropy"]
    return named(_entropy(_attention(dataset)), "entropy", units="nat")


def distinct_entropy(dataset: xr.Dataset) -> xr.DataArray:
    """Return the y axis of Fig. 6 per class; `.mean("sequence_class")` gives the figure's value.

    Keep the attention to the class's (globally) distinct tokens, renormalise it to sum to 1, and
    take the entropy in nats. NaN for a class without distinct tokens, and where their attention
    has underflowed to zero: there is nothing to renormalise.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `simulate`, `predict` or an observer, with attention or what is measured of it.

    Returns
    -------
    xarray.DataArray
        For each class, and all other dims of the dataset.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab import measures
    >>> run = attnlab.simulate("syn-small", gradient="population", progress=False)
    >>> measures.distinct_entropy(run).isel(step=-1).values.round(2)
    array([[1.98, 1.98]])
    """
    if _only_recorded(dataset, "distinct_entropy"):
        return dataset["distinct_entropy"]
    kept = _attention(dataset).where(is_distinct(dataset), 0.0)
    mass = kept.sum("token", skipna=False)
    return named(_entropy(kept / mass.where(mass != 0)), "distinct_entropy", units="nat")


def common_mass(dataset: xr.Dataset) -> xr.DataArray:
    """Return the attention that a class gives to common tokens, sum of c_{l|n} over G_CT.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `simulate`, `predict` or an observer, with attention or what is measured of it.

    Returns
    -------
    xarray.DataArray
        For each class, and all other dims of the dataset.

    Examples
    --------
    >>> import attnlab
    >>> from attnlab import measures
    >>> run = attnlab.simulate("syn-small", gradient="population", progress=False)
    >>> measures.common_mass(run).isel(step=[0, -1], sequence_class=0).values.round(2)
    array([[0.65, 0.4 ]])
    """
    if _only_recorded(dataset, "common_mass"):
        return dataset["common_mass"]
    attention = _attention(dataset).isel(token=np.flatnonzero(is_common(dataset)))
    return named(attention.sum("token", skipna=False), "common_mass")


def effective_tokens(dataset: xr.Dataset) -> xr.DataArray:
    """Return exp(entropy): the number of tokens that equal attention of this entropy would cover.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `simulate`, `predict` or an observer, with attention or what is measured of it.

    Returns
    -------
    xarray.DataArray
        For each class, and all other dims of the dataset.
    """
    if _only_recorded(dataset, "effective_tokens"):
        return dataset["effective_tokens"]
    return named(xr.apply_ufunc(maps.effective_tokens, entropy(dataset)), "effective_tokens")


def relative_gain(
    dataset: xr.Dataset, *, token: int, other: int, sequence_class: int
) -> xr.DataArray:
    """r_{l/l'|n} = c_{l|n}^2 / c_{l'|n}^2 - 1, for l = `token` over l' = `other` (Theorem 3).

    Theorem 3 writes it with f_n = c_n / |c_n|_2; the norm cancels. Infinite once the attention to
    `other` has underflowed to zero.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention`.
    token : int
        l, as the dataset labels it.
    other : int
        l'.
    sequence_class : int
        n.

    Returns
    -------
    xarray.DataArray
        r over what is left of the dims.
    """
    attention = _select(_attention(dataset), "sequence_class", sequence_class)
    gaining = _select(attention, "token", token)
    losing = _select(attention, "token", other, field="other")
    if (losing == 0).all():
        raise InputError(
            f"other: class {sequence_class} gives no attention to token {other}; "
            "choose a token that the class draws"
        )
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        gain = (gaining / losing) ** 2 - 1
    return named(gain.assign_coords(token=token, other=other), "relative_gain")


def growth_factor(
    dataset: xr.Dataset, *, token: int | None = None, query: int | None = None
) -> xr.DataArray:
    """chi_l(t) = exp(2 (z_{ml}(t) - z_{ml}(0))) (Theorem 3, Fig. 3), for one or all l and m.

    `token` and `query` are token ids. The growth is from step or time 0, which must be recorded.
    Infinite where it exceeds the largest float64.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention_logits`, recorded from the start on.
    token : int, optional
        One token; by default all.
    query : int, optional
        One query; by default all.

    Returns
    -------
    xarray.DataArray
        chi.
    """
    logits = recorded(dataset, "attention_logits").astype(np.float64)
    axis = clock_of(logits)
    if token is not None:
        logits = _select(logits, "token", token)
    if query is not None:
        logits = _select(logits, "query", query)
    if logits.sizes[axis] == 0 or logits[axis].values[0] != 0:
        raise InputError(
            f"{axis}: the growth factor starts from {axis} 0, which is not the first record; "
            "add 0 to Record(at=...)"
        )
    growth = 2 * (logits - logits.isel({axis: 0}, drop=True))
    with np.errstate(over="ignore"):
        return named(xr.apply_ufunc(np.exp, growth), "growth_factor")


def recall(dataset: xr.Dataset, threshold: ArrayLike) -> xr.DataArray:
    """Return the fraction of distinct tokens that attention has found (Figs. 11 and 12).

    For each query, softmax the row of z over the contextual tokens (those that some class draws);
    for each class, the fraction of its distinct tokens whose value in the row of its query exceeds
    `threshold`; then the mean over the classes that have distinct tokens. A 1-D `threshold` adds
    a last dim `threshold`.

    Parameters
    ----------
    dataset : xarray.Dataset
        With `attention_logits`.
    threshold : array_like
        A number, or several.

    Returns
    -------
    xarray.DataArray
        Shares from 0 to 1.
    """
    thresholds = np.asarray(threshold, dtype=np.float64)
    if thresholds.ndim > 1:
        raise InputError(f"threshold: expected a number or a list, got {thresholds.ndim} dims")
    logits = recorded(dataset, "attention_logits").transpose(..., "query", "token")
    contextual = np.flatnonzero(in_play(dataset))
    distinct = is_distinct(dataset).values
    owners = np.flatnonzero(distinct.any(axis=1))
    if owners.size == 0:
        raise InputError("probability: no class has a distinct token, so there is none to recall")
    rows = logits.indexes["query"].get_indexer(dataset["query_token"].values)
    if np.any(rows < 0):
        missing = dataset["query_token"].values[rows < 0][0]
        raise InputError(
            f"query: the row of query token {missing} is not in attention_logits; "
            "measure the whole dataset first, then select"
        )

    z = logits.values.astype(np.float64, copy=False)  # ... x query x token
    z_max = z[..., contextual].max(axis=-1, keepdims=True)
    softmax_sum = np.exp(z[..., contextual] - z_max).sum(axis=-1, keepdims=True)
    found = np.zeros((*z.shape[:-2], thresholds.size))
    for k in owners:  # one class at a time: memory follows its distinct tokens, not K x M
        row = slice(rows[k], rows[k] + 1)
        share = np.exp(z[..., row, :][..., distinct[k]] - z_max[..., row, :])
        share /= softmax_sum[..., row, :]  # ... x 1 x distinct tokens
        for i, level in enumerate(thresholds.ravel()):
            found[..., i] += (share > level).mean(axis=(-2, -1)) / owners.size
    # A comparison with NaN is False, which would read as "not found".
    found[np.isnan(z[..., contextual]).any(axis=(-2, -1))] = np.nan

    template = logits.isel(query=0, token=0, drop=True)
    if thresholds.ndim == 0:
        result = template.copy(data=found[..., 0]).assign_coords(threshold=float(thresholds))
    else:
        coords = {**template.coords, "threshold": thresholds}
        result = xr.DataArray(found, coords=coords, dims=(*template.dims, "threshold"))
    return named(result, "recall")


def recall_fall(recall: xr.DataArray, *, upper: float, lower: float) -> xr.DataArray:
    """Return the factor by which the threshold grows while recall falls from `upper` to `lower`.

    The larger it is, the slower the descent, hence the sparser the attention (Appendix G); nan
    where the curve does not pass both.

    Parameters
    ----------
    recall : xarray.DataArray
        As `recall` has it, along `threshold`.
    upper : float
        Recall at which the descent begins.
    lower : float
        And where it ends.

    Returns
    -------
    xarray.DataArray
        The factor.
    """
    log = np.log(recall["threshold"].values)

    def of_curve(curve: NDArray[np.float64]) -> float:
        rising = curve[::-1]  # recall falls with the threshold; np.interp wants it to rise
        if not rising[0] < lower < upper < rising[-1]:
            return float("nan")
        high, low = np.interp([upper, lower], rising, log[::-1])
        return float(np.exp(low - high))

    fall = xr.apply_ufunc(of_curve, recall, input_core_dims=[["threshold"]], vectorize=True)
    return named(fall, "recall_fall", upper=upper, lower=lower)


def stable_rank(dataset: xr.Dataset) -> xr.DataArray:
    """|W|_F^2 / |W|_2^2 of the MLP's lower matrix, between 1 and its rank; nan where W is 0.

    Of `mlp_weights`, the coordinates of W along contextual tokens, at each record. JoMA: it falls,
    then rises again, as attention becomes sparse and then dense.

    Parameters
    ----------
    dataset : xarray.Dataset
        The result of a model with an MLP, with its weights.

    Returns
    -------
    xarray.DataArray
        From 1 to the rank.
    """
    if "mlp_weights" not in dataset:
        raise InputError(
            'mlp_weights: not recorded; train a model with an MLP, and Record("logits")'
        )
    weights = dataset["mlp_weights"].astype(np.float64)
    found = xr.apply_ufunc(_stable_rank, weights, input_core_dims=[["unit", "token"]])
    return named(found, "stable_rank")


def _stable_rank(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    # what is not finite has no singular values, and would stop the others
    finite = np.asarray(np.isfinite(weights).all(axis=(-2, -1), keepdims=True))
    known: NDArray[np.float64] = np.where(finite, weights, 0.0)
    squares = np.linalg.svd(known, compute_uv=False) ** 2
    with np.errstate(invalid="ignore"):
        rank = squares.sum(axis=-1) / squares[..., 0]
    return np.where(finite[..., 0, 0], rank, np.nan)


def _entropy(distribution: xr.DataArray) -> xr.DataArray:
    return xr.apply_ufunc(maps.entropy, distribution, input_core_dims=[["token"]])


def _only_recorded(dataset: xr.Dataset, statistic: str) -> bool:
    return statistic in dataset and "attention" not in dataset


def recorded(dataset: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable of the dataset, or say that it was not recorded."""
    if name not in dataset:
        raise InputError(f"{name}: not recorded; add it to Record(what=...)")
    return dataset[name]


def _attention(dataset: xr.Dataset) -> xr.DataArray:
    return recorded(dataset, "attention").astype(np.float64)


def _select(array: xr.DataArray, dim: str, label: int, field: str | None = None) -> xr.DataArray:
    try:
        return array.sel({dim: label})
    except KeyError:
        labels = array[dim].values
        raise InputError(
            f"{field or dim}: {label} is not in the dataset, which has "
            f"{labels.size} from {labels.min()} to {labels.max()}"
        ) from None


def named(array: xr.DataArray, name: str, **attrs: str | float) -> xr.DataArray:
    """Return an array under another name, with these attributes alone."""
    array = array.rename(name)
    array.attrs = dict(attrs)
    return array


# -- roles of tokens (Section 3.2), from the P(l|m,n) that a result carries ------------------------


def class_count(dataset: xr.Dataset) -> xr.DataArray:
    """Return |Omega(l)|, the number of classes that can draw each token, along `token`."""
    return _drawn(dataset).sum("sequence_class")


def in_play(dataset: xr.Dataset) -> xr.DataArray:
    """Return which tokens some class can draw: the contextual tokens, along `token`."""
    return class_count(dataset) > 0


def is_common(dataset: xr.Dataset) -> xr.DataArray:
    """Return which tokens are in G_CT, those of several classes, along `token`."""
    return class_count(dataset) > 1


def is_distinct(dataset: xr.Dataset) -> xr.DataArray:
    """Return which tokens are in G_DT(n), of one class only, along (`sequence_class`, `token`)."""
    return _drawn(dataset) & (class_count(dataset) == 1)


def _drawn(dataset: xr.Dataset) -> xr.DataArray:
    if "probability" not in dataset:
        raise InputError(
            "probability: not in the dataset; token roles need P(l|m,n) along "
            "(sequence_class, token), which simulate() adds next to attention"
        )
    probability = dataset["probability"]
    if set(probability.dims) != {"sequence_class", "token"}:
        remedy = "measure the whole dataset first, then select"
        if "setting" in probability.dims:
            remedy = "take one set of classes, .isel(setting=0)"
        raise InputError(
            f"probability: expected dims (sequence_class, token), got {probability.dims}; {remedy}"
        )
    return probability.transpose("sequence_class", "token") > 0

"""Attention the slow way: whole maps in float64, every statistic row by row from its formula."""

import math

import numpy as np

from attnlab.observing import kv_cache


def whole_maps(q, k, *, scale, causal=False, window=None, mask=None, softcap=None, sinks=None):
    """Logits and maps (B, H, Q, K), what is visible, and what a learnable sink takes."""
    B, H, Q, _ = q.shape
    K, group = k.shape[2], H // k.shape[1]
    logits = np.full((B, H, Q, K), -np.inf)
    visible = np.zeros((B, H, Q, K), bool)
    mask = None if mask is None else np.broadcast_to(mask, (B, H, Q, K))
    for b, h, i, j in np.ndindex(B, H, Q, K):
        place = i + K - Q
        if causal and j > place:
            continue
        if window is not None and abs(place - j) >= window:
            continue
        if mask is not None and (
            not mask[b, h, i, j] if mask.dtype == bool else mask[b, h, i, j] < -9e3
        ):
            continue
        x = float(q[b, h, i] @ k[b, h // group, j]) * scale
        if softcap is not None:
            x = softcap * math.tanh(x / softcap)
        if mask is not None and mask.dtype != bool:
            x += mask[b, h, i, j]
        logits[b, h, i, j], visible[b, h, i, j] = x, True
    maps, sink = np.zeros((B, H, Q, K)), np.zeros((B, H, Q))
    for b, h, i in np.ndindex(B, H, Q):
        if visible[b, h, i].any():
            weights = np.exp(logits[b, h, i])
            of_sink = 0.0 if sinks is None else math.exp(sinks[h])
            maps[b, h, i] = weights / (weights.sum() + of_sink)
            sink[b, h, i] = of_sink / (weights.sum() + of_sink)
    return logits, maps, visible, sink


def of_row(p, x, seen, *, place, start=0, tokens=None, common=None, sink_logit=None):
    """All that is said of one row: p and logits x over keys."""
    n = int(seen.sum())
    h = -sum(w * math.log(w) for w in p if w > 0)
    order = np.sort(p)[::-1]
    values = {
        "entropy": h,
        "relative_entropy": h / math.log(n),
        "effective_tokens": math.exp(h),
        "participation": 1 / sum(w**2 for w in p),
        "top_mass": [order[:k].sum() for k in (1, 4, 16, 64)],
        "largest_logit": x[seen].max(),
        "visible_keys": n,
        "sink_mass": [p[start : start + c].sum() for c in (1, 4)],
    }
    counts = []
    for share in (0.9, 0.95, 0.99):
        number = 1
        while order[:number].sum() < share * p.sum() - 1e-12:
            number += 1
        counts.append(number)
    values["keys_for"], values["keys_share"] = counts, [c / n for c in counts]
    outcomes, whole = list(x[seen]), h
    if sink_logit is not None:
        rest = 1 - p.sum()
        values["learnable_sink_mass"] = rest
        outcomes.append(sink_logit)
        whole = h - rest * math.log(rest)
    T = len(outcomes)
    s = math.sqrt(sum((o - sum(outcomes) / T) ** 2 for o in outcomes))
    beta = s * math.sqrt(T / (T - 1))
    rest = (T - 1) * math.exp(-beta)
    values["logit_norm"] = s
    values["entropy_floor"] = math.log(1 + rest) + beta * rest / (1 + rest)
    values["entropy_slack"] = whole - values["entropy_floor"]
    if place is not None:
        values["self_mass"] = p[place]
        values["previous_mass"] = p[place - 1] if place else 0.0
        near = [j for j in range(len(p)) if abs(place - j) < 64]
        values["local_mass"] = p[near].sum()
        values["mean_distance"] = sum(w * abs(place - j) for j, w in enumerate(p)) / p.sum()
        if tokens is not None:
            mine = tokens[place]
            earlier = [j for j in range(start, place) if seen[j]]
            for name, targets in (
                ("induction_mass", [j for j in earlier if j > start and tokens[j - 1] == mine]),
                ("duplicate_mass", [j for j in earlier if tokens[j] == mine]),
            ):
                values[name] = p[targets].sum() - len(targets) / n if targets else math.nan
    if common is not None:
        values["common_mass"], values["distinct_mass"] = p[common].sum(), p[~common].sum()
    return values


def of_keys(p, seen, there):
    """What the keys of one head receive from the rows that count, and how much the heaviest do.

    p, seen: the maps of these rows and what they see; there: which keys are none of padding.
    """
    total, seeing = p.sum(axis=0), seen.sum(axis=0)
    mean = np.where(there & (seeing > 0), total / np.maximum(seeing, 1), np.nan)
    shared = np.where(there & (seeing >= seeing.max() / 2), mean, -np.inf)
    heaviest = np.sort(total[there])[::-1][: int(np.ceil(0.1 * there.sum()))].sum()
    return {
        "received": mean,
        "strongest_mass": shared.max(),
        "strongest_is_first": float(shared.argmax() == there.argmax()),
        "heavy_mass": heaviest / total.sum(),
    }


def value_norm_ratio(value, there):
    """The first key's value beside the others', of one head."""
    norms = np.linalg.norm(value, axis=-1)
    first = int(there.argmax())
    others = norms[there].sum() - norms[first]
    return norms[first] / (others / (there.sum() - 1))


def of_caches(p, seen, value, *, later, sink):
    """What each policy keeps under each budget, of one head without padding.

    p, seen: of the rows that count, of which the last `later` come after the prompt. sink: what a
    learnable sink takes from each of them.
    """
    prompt, window = p[:-later], p[:-later][-32:]
    masses = np.zeros((len(kv_cache.POLICIES), len(kv_cache.BUDGETS)))
    errors = np.zeros_like(masses)
    for at, (policy, share) in enumerate(
        (policy, share) for policy in kv_cache.POLICIES for share in kv_cache.BUDGETS
    ):
        for row, visible, rest in zip(p[-later:], seen[-later:], sink[-later:], strict=True):
            votes = {"heavy": prompt.sum(0), "window": window.sum(0)}
            keys = sorted(_kept(policy, share, row, visible, **votes))
            assert len(keys) == int(np.ceil(round(share * visible.sum(), 9)))
            left = np.zeros_like(row)
            left[keys] = row[keys]
            output, anew = row @ value, left @ value / (left.sum() + rest)
            masses.flat[at] += left.sum() / row.sum() / later
            errors.flat[at] += np.linalg.norm(output - anew) / np.linalg.norm(output) / later
    return {"retained_mass": masses, "output_error": errors}


def _kept(policy, share, p, seen, *, heavy, window):
    """Keys that a policy keeps of one row."""
    n = int(seen.sum())
    there = np.flatnonzero(seen)
    m = int(np.ceil(round(share * n, 9)))

    def best(scores, number, among):
        return set(sorted(among, key=lambda j: (-scores[j], j))[:number])

    if policy == "oracle":
        return best(p, m, there)
    if policy == "sinks_recent":
        sinks = {j for j in there if j < min(4, m // 2)}
        return sinks | set([j for j in there if j not in sinks][len(sinks) - m :])
    votes, recent = (heavy, m // 2) if policy == "heavy_recent" else (window, min(32, m // 2))
    latest = set(there[n - recent :])
    return latest | best(votes, m - recent, [j for j in there if j not in latest])


def over_sequences(dataset):
    """Return means over sequences of the result of `statistics`, the largest of `max_logit`,
    without variables that belong to one sequence.

    Standard errors are those of sampling rows: the distance from the mean of all rows. For those of
    other texts, see the bootstrap over sequences (`attnlab.observing.snap`).
    """
    kept = dataset.drop_dims(["row", "key"])
    means = kept.mean("sequence", keep_attrs=True)
    for name in (str(name) for name in kept.data_vars if str(name).endswith("_se")):
        errors = kept[name]
        number = errors.notnull().sum("sequence")
        error = (errors**2).sum("sequence") ** 0.5 / number.where(number > 0)
        means[name] = error.assign_attrs(errors.attrs)
    if "max_logit" in kept:
        means["max_logit"] = kept["max_logit"].max("sequence", keep_attrs=True)
    return means

"""attnlab observe: the attention of a model as it is, or of a training's checkpoints."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from attnlab.cli import options
from attnlab.cli.exit_codes import FAULTS
from attnlab.cli.options import check_writable
from attnlab.cli.printing import about, say, say_json, say_written, show, show_table
from attnlab.files.errors import InputError
from attnlab.files.progress import waiting

if TYPE_CHECKING:
    import xarray as xr

    from attnlab.observing import Checkpoint, Lint

LOADING = "loading PyTorch"
PAGES = (".html",)
app = options.group("Measure what each head of a PyTorch model attends to.")

# of a head: what is printed, by the name of the variable
COLUMNS = {
    "entropy": "entropy",
    "effective_tokens": "keys",
    "sink": "sink",
    "self_mass": "self",
    "previous_mass": "previous",
    "mean_distance": "distance",
}


def model_verb(
    path: Path,
    *,
    text: str,
    tokenizer: Path | None = None,
    sequences: int = 8,
    length: int = 512,
    rows: int | None = None,
    min_keys: int = 16,
    device: str = "cpu",
    out: Path | None = None,
    html: Path | None = None,
    as_json: bool = False,
) -> None:
    """Measure the attention of a model on a text, layer by layer and head by head.

    PATH is a folder as transformers saves a model, or a snapshot in the Hugging Face cache. Nothing
    is fetched, and the model's own code is not run. The text is cut into sequences; `builtin` is
    the documentation topics of your Python.

    \b
    Examples:
      attnlab observe model my-model --text book.txt
      attnlab observe model my-model --text builtin --length 256 --out attention.nc
      attnlab observe model my-model --text builtin --html page.html
      attnlab observe model my-model --text builtin --json

    Options
    -------
    path
        The folder of a model.
    text
        A UTF-8 text file, or builtin.
    tokenizer
        A folder with a tokenizer, if the model's has none.
    sequences
        How many sequences of the text.
    length
        Tokens in each, or the model's context.
    rows
        Number of queries to sample; else all.
    min_keys
        Leave out queries that see fewer keys.
    device
        cpu or cuda.
    out
        A file for the dataset (.nc).
    html
        A report of all measurements (.html).
    """
    check_writable(out, (".nc",), "out")
    check_writable(html, PAGES, "html")
    with waiting(LOADING, quiet=as_json):
        from attnlab.files.netcdf import save
        from attnlab.observing import observe_model

        _check_device(device)
    with waiting(f"measuring {path}", quiet=as_json):
        probe, theory = _probe(text, path, tokenizer, sequences, length)
        found = observe_model(
            path, probe, rows=rows, min_keys=min_keys, device=device, **(theory if html else {})
        )
    if out is not None:
        save(found, out)
    _write_page(found, html)
    heads = _heads(found)
    if as_json:
        unseen = json.loads(found.attrs["unseen"])
        document = {
            **about(found, "torch"),
            "probe": _shape(probe),
            "heads": heads,
            "unseen": unseen,
        }
        say_json(document)
        return
    sizes = " x ".join(map(str, _shape(probe)))
    say(f"{path}: {found.sizes['layer']} layers, {found.sizes['head']} heads, {sizes} tokens")
    _print_heads(heads)
    _print_unseen(found)
    say_written(out, html)


def checkpoints_verb(
    where: str,
    *,
    text: str,
    pattern: str | None = None,
    tokenizer: Path | None = None,
    sequences: int = 8,
    length: int = 512,
    rows: int | None = None,
    min_keys: int = 16,
    device: str = "cpu",
    learning_rate: float | None = None,
    out: Path | None = None,
    html: Path | None = None,
    as_json: bool = False,
) -> None:
    """Measure a training by its checkpoints: when do heads form and come to rest?

    WHERE is a folder with checkpoint-N folders, a repository of the Hugging Face cache whose
    revisions have steps in their names (step1000, step_20k, stage1-step1000-tokens5B), or a glob of
    folders, in quotes. Their files are checked first (attnlab observe lint). Steps whose files are
    faulty are left out, and no snap is claimed across them. The same command resumes a stopped one.

    \b
    Examples:
      attnlab observe checkpoints out --text book.txt --out observed --html page.html
      attnlab observe checkpoints hub/models--EleutherAI--pythia-70m --text book.txt
      attnlab observe checkpoints 'runs/*' --pattern 'iter(\\d+)' --text book.txt --json

    Options
    -------
    where
        A folder, a cached repository, or a glob.
    pattern
        A regular expression with the step as its group.
    text
        A UTF-8 text file, or builtin.
    tokenizer
        A folder with a tokenizer, if the model's has none.
    sequences
        How many sequences of the text.
    length
        Tokens in each, or the model's context.
    rows
        Number of queries to sample; else all.
    min_keys
        Leave out queries that see fewer keys.
    device
        cpu or cuda.
    learning_rate
        The training's constant learning rate, by which a snap is judged (default: as logged in the
        last checkpoint's trainer_state.json).
    out
        A folder for steps and result.
    html
        A page of it all (.html).
    """
    check_writable(html, PAGES, "html")
    with waiting(LOADING, quiet=as_json):
        from attnlab.observing import find_checkpoints, observe_checkpoints

        _check_device(device)
    found = find_checkpoints(where, pattern=pattern)
    probe, theory = _probe(text, found[0].path, tokenizer, sequences, length)
    result = observe_checkpoints(
        found,
        probe,
        out=out,
        rows=rows,
        min_keys=min_keys,
        device=device,
        learning_rate=learning_rate,
        progress=False if as_json else "auto",
        **(theory if html or out else {}),
    )
    _write_page(result, html)
    heads = _heads(result.isel(step=-1))
    for row in heads:
        start = result["entropy"].isel(step=0).sel(layer=row["layer"], head=row["head"])
        row["entropy_start"] = float(start)
    if as_json:
        document = {
            **about(result, "torch"),
            "steps": result["step"].values.tolist(),
            "probe": _shape(probe),
            "heads": heads,
            "lint": json.loads(result.attrs["lint"]),
            "unseen": json.loads(result.attrs["unseen"]),
            "not_finite": json.loads(result.attrs["not_finite"]),
        }
        say_json(document)
        return
    steps = result["step"].values
    say(f"{where}: {steps.size} steps from {steps[0]} to {steps[-1]}")
    _print_heads(heads, snap=True)
    _print_unseen(result)
    faults = json.loads(result.attrs["lint"])["faults"]
    for fault in faults:
        say(f"lint: {fault['words']}")
    for step, modules in json.loads(result.attrs["not_finite"]).items():
        say(f"step {step}: attention is not a finite number in {', '.join(modules)}")
    say_written(out, html)


def lint_verb(where: str, *, pattern: str | None = None, as_json: bool = False) -> None:
    """Check the files of checkpoints for faults.

    Every tensor is read and hashed; nothing is run. Faults are steps with the same weights, or with
    those of the last step; changes of configuration, tensors or dtype; numbers that are not finite;
    and files that cannot be read. The exit code is 1 if there are any.

    \b
    Examples:
      attnlab observe lint out
      attnlab observe lint hub/models--EleutherAI--pythia-70m --json

    Options
    -------
    where
        A folder, a cached repository, or a glob.
    pattern
        A regular expression with the step as its group.
    """
    with waiting(LOADING, quiet=as_json):
        from attnlab.observing import find_checkpoints, lint
    checkpoints = find_checkpoints(where, pattern=pattern)
    found = lint(checkpoints, progress=False if as_json else "auto")
    if as_json:
        say_json(found.document())
    else:
        _print_lint(checkpoints, found)
    if found.faults:
        raise typer.Exit(FAULTS)


def report_verb(path: Path, *, html: Path | None = None) -> None:
    """Make one HTML page of a saved observation: every head, roles, snaps and caches.

    FILE is what `attnlab observe model --out FILE.nc` or `attnlab.save(observer.result(), ...)`
    wrote, or result.nc in the folder of `attnlab observe checkpoints --out`. The page is
    self-contained. The theory's predictions are about the text that the command was given, or else
    about the probe.

    \b
    Examples:
      attnlab observe report attention.nc
      attnlab observe report observed/result.nc --html page.html

    Options
    -------
    path : FILE
        A saved dataset (.nc).
    html
        Where the page goes; by default next to the file.
    """
    page = path.with_suffix(".html") if html is None else html
    check_writable(page, PAGES, "html")
    from attnlab.files.netcdf import load
    from attnlab.observing.report_page import report
    from attnlab.observing.words import in_words, with_steps

    dataset = with_steps(load(path))
    if "theory" not in dataset.attrs and "received_start" in dataset:
        from attnlab.observing.report_page import expected

        dataset.attrs["theory"] = json.dumps(expected(dataset))
    report(dataset, page)
    for sentence in in_words(dataset):
        say(sentence)
    say_written(page)


def compare_verb(
    first: Path,
    second: Path,
    *,
    match: Literal["similarity", "number"] = "similarity",
    html: Path | None = None,
    as_json: bool = False,
) -> None:
    """Compare two saved observations: which heads do the same, and what differs?

    The two files hold datasets of two trainings, for example of two seeds or learning rates, saved
    as for `attnlab observe report`. Heads are matched by their roles and scores at the last step.

    \b
    Examples:
      attnlab observe compare seed0.nc seed1.nc
      attnlab observe compare before.nc after.nc --match number --html compared.html

    Options
    -------
    first : FILE
        A saved dataset (.nc).
    second : FILE
        A second saved dataset (.nc).
    match
        similarity, or number: layer by layer and head by head.
    html
        A page of it all (.html).
    """
    check_writable(html, PAGES, "html")
    from attnlab.files.netcdf import load
    from attnlab.observing.comparison import compare, comparison_page, comparison_text

    names = (str(first), str(second)) if first.name == second.name else (first.stem, second.stem)
    found = compare(load(first), load(second), match=match)
    if html is not None:
        comparison_page(found, html, names)
    if as_json:
        values = found.to_dict()
        document = {name: values["coords"][name]["data"] for name in ("side", "statistic")}
        document |= {name: one["data"] for name, one in values["data_vars"].items()}
        document |= {"first": str(first), "second": str(second), **values["attrs"]}
        say_json(document)
        return
    show(comparison_text(found, names))
    say_written(html)


def _write_page(found: xr.Dataset, html: Path | None) -> None:
    if html is not None:
        from attnlab.observing import report

        report(found, html)


def _print_lint(checkpoints: tuple[Checkpoint, ...], found: Lint) -> None:
    if found.faults:
        columns = {"kind": "fault", "steps": "steps", "words": "what was found"}
        rows = [{**vars(of), "steps": ", ".join(map(str, of.steps))} for of in found.faults]
        show_table(rows, columns)
    said = f"{len(found.faults)} found" if found.faults else "nothing wrong"
    number = f"{len(checkpoints)} checkpoint" + ("" if len(checkpoints) == 1 else "s")
    say(f"{number} from {found.steps[0]} to {found.steps[-1]}: {said}")


def _probe(
    text: str, folder: Path, tokenizer: Path | None, sequences: int, length: int
) -> tuple[Any, dict[str, Any]]:
    """Return the probe, and the whole text with the names of its tokens, for predictions."""
    from attnlab.observing.model_files import cut_into_sequences, tokens_of_text
    from attnlab.tasks.text.sources import builtin_text, read_text

    for name, value in (("sequences", sequences), ("length", length)):
        if value < 1:
            raise InputError(f"{name}: expected a whole number of at least 1, got {value}")
    words = builtin_text() if text == "builtin" else read_text(Path(text))
    names, ids = tokens_of_text(words, folder, tokenizer=tokenizer)
    probe = cut_into_sequences(names, ids, folder, sequences=sequences, length=length)
    return probe, {"text": ids, "names": names}


def _check_device(device: str) -> None:
    import torch

    if device != "cpu" and not (device.startswith("cuda") and torch.cuda.is_available()):
        raise InputError(f"device: {device!r} is not here; give cpu")


def _shape(probe: Any) -> list[int]:
    return list(probe["input_ids"].shape)


def _heads(found: xr.Dataset) -> list[dict[str, Any]]:
    """Return one entry for each layer and head."""
    from attnlab.observing.snap import STATES

    rows = []
    for layer, head in product(found["layer"].values, found["head"].values):
        one = found.sel(layer=layer, head=head)
        if not bool(one["entropy"].notnull()):
            continue  # another layer has more heads, or no query saw enough keys
        row: dict[str, Any] = {"layer": int(layer), "head": int(head)}
        row |= {name: str(one[name].item()) for name in ("module", "kind")}
        for name in COLUMNS:
            values = one["sink_mass"].sel(first=1) if name == "sink" else one[name]
            row[name] = float(values)
        for name in ("snap_step", "snap_low", "snap_high", "snap_missing", "snap_speed_left"):
            if name in one:
                row[name] = float(one[name])
        if "snap_state" in one:
            row["snap_state"] = STATES[int(one["snap_state"])]
        if "head_role" in one:
            row |= _role(one)
        if "retained_mass" in one:
            kept = one["retained_mass"]
            budgets = [f"{budget:g}" for budget in kept["budget"].values.tolist()]
            row["retained_mass"] = {
                str(of["policy"].values): dict(zip(budgets, of.values.tolist(), strict=True))
                for of in kept.transpose("policy", "budget")
            }
        rows.append(row)
    return rows


def _role(one: xr.Dataset) -> dict[str, Any]:
    """Return the role of a head, the scores of all roles, and the steps since which it has them."""
    names, index = one["role"].values.tolist(), int(one["head_role"])
    found: dict[str, Any] = {"role": names[index] if index >= 0 else None}
    for name in ("role_score", "role_onset", "role_onset_low", "role_onset_high"):
        if name in one:
            values = one[name].isel(step=-1) if "step" in one[name].dims else one[name]
            found[name] = dict(zip(names, values.values.tolist(), strict=True))
    return found


def _print_heads(heads: list[dict[str, Any]], *, snap: bool = False) -> None:
    if not heads:  # of a step at which the training has diverged
        say("no head of the last step has attention that is a finite number")
        return
    columns: dict[str, Any] = {"layer": "layer", "head": "head", "role": "role"}
    columns |= {name: (title, ".2f") for name, title in COLUMNS.items()} | {"snap": ("snap", ">")}
    rows = []
    for row in heads:
        shown = {**row, "role": row.get("role")}
        if row["kind"] != "self":
            shown["layer"] = f"{row['layer']} {row['kind']}"
        if "entropy_start" in row:
            shown["entropy"] = row["entropy_start"], row["entropy"]
        rows.append({**shown, "snap": _snap(row)} if snap else shown)
    show_table(rows, columns)
    show(
        "*means over queries. entropy in nats; keys: exp(entropy); sink: attention to the first "
        f"key; distance of what is attended to{_SNAP_WORDS if snap else ''}*"
    )


_SNAP_WORDS = (
    "; snap: the step from which on attention changes at less than 2 % of its fastest, per "
    "learning rate, with the 90 % interval over sequences in brackets, or why there is none"
)


def _snap(row: dict[str, Any]) -> str:
    if math.isnan(row["snap_step"]):
        return str(row.get("snap_state", "-"))
    low, high = (row.get(name, math.nan) for name in ("snap_low", "snap_high"))
    between = f" [{low:.0f}, {high:.0f}]" if math.isfinite(low + high) else ""
    return f"{row['snap_step']:.0f}{between}"


def _print_unseen(found: xr.Dataset) -> None:
    unseen = json.loads(found.attrs["unseen"])
    if unseen:
        say(f"only some layers are measured; nothing is known of {', '.join(sorted(unseen))}")


for name, verb in (
    ("model", model_verb),
    ("checkpoints", checkpoints_verb),
    ("lint", lint_verb),
    ("report", report_verb),
    ("compare", compare_verb),
):
    options.add(app, name, verb)

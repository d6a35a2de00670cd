"""The page in a real browser: it shows the simulator's own numbers, and stays in order."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_run import LIMIT, of_page
from typer.testing import CliRunner

import attnlab
from attnlab.cli.app import app
from attnlab.playground.opening import opening
from attnlab.playground.server import Server
from attnlab.playground.single_page import single_page
from attnlab.simulation import Simulation, as_simulation

Open = Callable[..., Any]
FAMILY = of_page(task={"classes": "family"})
FLOW_FROM_NOW = "void attnlabPage.edit((of) => ({ ...of, motion: { name: 'flow', time: 50 } }), '')"
AXE = Path(__file__).parents[1] / "support" / "axe" / "axe.min.js"
FINE = 2e-3  # of the axis: a fraction of a pixel

# widths of the bars as shares of the axis, read off the picture
BARS = """
(k) => [...document.querySelectorAll(`svg.bars[data-class="${k}"] [data-token]`)].map((row) => {
  const [track, bar] = row.querySelectorAll("rect")
  const width = (of) => Number(of.getAttribute("width"))
  return [row.dataset.token, width(bar) / width(track)]
})
"""


def drawn(page: Any) -> int:
    return int(page.locator("#live").get_attribute("data-drawn"))


def turn(page: Any, control: str, index: int) -> None:
    """Move a slider, and wait for the bars."""
    before = drawn(page)
    page.evaluate(
        """([id, index]) => {
          const slider = document.getElementById(`control-${id}`)
          slider.value = index
          slider.dispatchEvent(new Event("input"))
        }""",
        [control, index],
    )
    page.wait_for_function(f"Number(document.getElementById('live').dataset.drawn) > {before}")


def go_to_end(page: Any) -> None:
    page.evaluate("attnlabPage.player.go(attnlabPage.player.last)")


def expect_bars(page: Any, document: dict[str, Any]) -> None:
    """The bars of the first class at the end of the run, as Python has them."""
    result = attnlab.simulate(Simulation.from_document({**document, "dtype": "float64"}))
    attention = result["attention"].isel(seed=0)
    shown = {name: share for name, share in page.evaluate(BARS, 0)}
    last = attention.isel({attention.dims[0]: -1, "sequence_class": 0}).values
    highest = float(attention.isel(sequence_class=slice(0, 2)).max())
    axis = next(end for end in (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0) if end >= highest)
    for token in np.flatnonzero(last):
        assert shown[str(token)] * axis == pytest.approx(last[token], abs=FINE * axis)


def test_it_opens_on_words_at_step_0_and_plays_by_itself(open_page: Open) -> None:
    page = open_page(motion=True)
    sentence = page.locator("#sentence").inner_text()
    assert "was" in sentence and "won" in sentence
    page.wait_for_function(
        "(({ player: p, tour }) => p.playing && p.position > 0 && tour.box.hidden)(attnlabPage)"
    )  # the tour is offered when the play is over
    page.evaluate("attnlabPage.player.go(0.9 * attnlabPage.player.last)")  # it takes its time
    page.wait_for_function("attnlabPage.player.position === attnlabPage.player.last")
    assert "has won" in page.locator("#story").inner_text()
    assert page.locator("#stages [aria-current]").inner_text().endswith("Slowed down")
    page.wait_for_function("document.getElementById('summary').textContent.includes('has won')")
    page.locator("#tour").wait_for()
    assert page.errors == []


def test_it_stands_still_where_motion_is_unwelcome(open_page: Open) -> None:
    page = open_page()
    page.locator("#tour").wait_for()  # after which it would begin to play
    assert page.evaluate("[attnlabPage.player.playing, attnlabPage.player.position]") == [False, 0]
    assert page.locator("#step-shown").inner_text().startswith("step 0")


def test_the_bars_are_the_simulators_numbers_and_follow_the_sliders(open_page: Open) -> None:
    page = open_page({"a": FAMILY})
    go_to_end(page)
    turn(page, "eta_z", 6)
    rate = page.evaluate("attnlabPage.document.eta_z")
    assert rate == 2
    expect_bars(page, {**FAMILY, "eta_z": 2.0})
    assert page.locator("#live.stale").count() == 0


def test_what_was_done_can_be_undone_and_is_in_the_link(open_page: Open) -> None:
    page = open_page({"a": FAMILY})
    turn(page, "eta_y", 3)
    turn(page, "common", 2)
    page.get_by_role("button", name="Undo").click()
    assert page.evaluate("attnlabPage.document.task.classes") == "family"
    assert page.evaluate("attnlabPage.document.eta_y") == 0.2
    page.get_by_role("button", name="Redo").click()
    assert page.evaluate("attnlabPage.document.task.classes") == "family:common=3"
    page.locator("#rung-corrected").check()
    page.wait_for_function("location.hash.includes('common%3D3')")
    page.wait_for_function("location.hash.includes('corrected')")
    again = open_page(address=page.url)
    assert again.evaluate("attnlabPage.state") == page.evaluate("attnlabPage.state")
    assert again.locator("#rung-corrected").is_checked()


def test_the_moment_and_the_sentence_are_in_the_link(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    page.get_by_role("button", name="Another sentence").click()
    page.evaluate("attnlabPage.player.go(0.5 * attnlabPage.player.last)")
    page.wait_for_function("/moment%22%3A[1-9]/.test(location.hash)")
    again = open_page(address=page.url, motion=True)
    again.locator("#tour").wait_for()  # after which it would begin to play
    for name in ("#sentence", "#step-shown"):
        assert again.locator(name).inner_text() == page.locator(name).inner_text()
    assert again.evaluate("attnlabPage.player.playing") is False


def test_two_experiments_at_once_play_as_one(open_page: Open) -> None:
    page = open_page(motion=True)
    page.evaluate(
        "for (const name of ['slow-decoder', 'shared'])"
        " document.querySelector(`#experiments [data-name=${name}]`).click()"
    )
    page.wait_for_function(
        "attnlabPage.state.experiment === 'shared' && attnlabPage.player.playing"
    )
    page.wait_for_function("attnlabPage.player.position > 1")
    moved = page.evaluate(
        """async () => {
          const { player } = attnlabPage
          player.pause()
          const before = player.position
          for (let i = 0; i < 4; i++) await new Promise(requestAnimationFrame)
          return player.position - before
        }"""
    )
    assert moved == 0


def test_an_api_that_has_gone_is_told(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    page.route("**/api/*", lambda route: route.abort())
    page.evaluate(FLOW_FROM_NOW)
    page.locator("#problem").wait_for()
    assert "attnlab play" in page.locator("#problem").inner_text()
    page.get_by_role("button", name="Undo").click()
    page.locator("#problem").wait_for(state="hidden")


def test_a_worker_that_cannot_start_is_told(open_page: Open, sources: str) -> None:
    page = open_page(address="about:blank", bars=False)
    page.route("**/worker.js", lambda route: route.abort())
    page.goto(sources)
    page.locator("#problem").wait_for()
    assert "worker failed" in page.locator("#problem").inner_text()
    assert page.locator("#live[aria-busy=true]").count() == 1


def test_a_damaged_link_is_refused_in_words(open_page: Open) -> None:
    page = open_page({"a": {**LIMIT, "eta_y": -1}})
    said = page.locator("#problem").inner_text()
    assert said.startswith("link: eta_y: expected a number from 0") and "afresh" in said
    assert page.errors == []


@pytest.mark.parametrize(
    "state",
    [
        {"a": of_page(model={"name": []})},
        {"a": {"classes": "syn-small", "engine": {"name": "limit"}, "eta_y": 1, "steps": 50}},
    ],
)
def test_a_link_of_the_wrong_kind_is_words_and_no_script_error(
    open_page: Open, state: dict[str, Any]
) -> None:
    page = open_page(state, bars=False)
    page.locator("#problem:not([hidden])").wait_for()
    assert page.locator("#problem").inner_text()
    assert page.errors == []


HOSTILE = [
    {"first": -1},
    {"first": "x"},
    {"sentence": 0.5},
    {"moment": "x"},
    {"rungs": "sgd"},
    {"b": {}},
    {"a": None},
    {"a": 3},
    {"a": []},
    {"b": False},
    {"experiment": {}},
    {"experiment": None},
    {"experiment": []},
    *(
        {"a": {**LIMIT, **of}}
        for of in (
            {"record": {"every": -1}},
            {"record": {"geometric": 1e9}},
            {"record": {"at": [5, -3]}},
            {"record": {"at": [99]}},
            {"record": []},
            {"seeds": "x"},
            {"eta_y": "1"},
            {"init": "foo"},
            {"init": [1, 2]},
            {"seeds": [1, 2]},
            {"learning_rate": 2},
            {"task": None},
            {"task": 3},
            {"task": {"name": "text"}},
            {"motion": 3},
            {"gradient": "everything"},
            {"engine": {}},
        )
    ),
    *(
        {"a": of_page(**of)}
        for of in (
            {"record": {"every": 1}, "motion": {"steps": 10**6}},
            {"motion": {"steps": "50"}},
            {"motion": {"steps": 10.5}},
            {"motion": {"name": None}},
            {"motion": {"optimizer": {"name": "sgd", "momentum": "0.5"}}},
            {"task": {"length": 8.5}},
            {"task": {"length": 8}},
            {"gradient": {"name": "batches", "size": 0}},
            *(
                {"task": {"classes": of}}
                for of in (
                    "constructor",
                    "family:constructor=3",
                    "family:common=-3",
                    3,
                    "family:classes=2.5",
                    "family:common=1000000000",
                    "family:common_mass=5",
                    "family:queries=3",
                )
            ),
        )
    ),
]


def test_no_link_keeps_the_page_or_its_worker_busy_for_ever(open_page: Open, sources: str) -> None:
    """What it cannot mean is refused when it is read, before anything is made of it."""
    page = open_page({"a": LIMIT}, address=sources)
    said = page.evaluate(
        """async (states) => {
          const { readState } = await import("/state.js")
          return states.map((state) => {
            try {
              return readState(state)
            } catch (error) {
              return error.name
            }
          })
        }""",
        [{"a": LIMIT, **of} for of in HOSTILE],
    )
    assert [of for of, answer in zip(HOSTILE, said, strict=True) if answer != "InputError"] == []


def test_names_with_markup_are_shown_as_text(open_page: Open) -> None:
    name = "<img src=x onerror='document.title=1'>"
    classes = {
        "vocabulary": [name, "b", "<b>m</b>", "n", "o"],
        "classes": [
            {"query": "<b>m</b>", "next": "n", "probs": {name: 0.6, "b": 0.4}},
            {"query": "<b>m</b>", "next": "o", "probs": {"b": 1}},
        ],
    }
    page = open_page({"a": of_page(task={"classes": classes})}, strict=True)
    page.get_by_role("button", name="Edit the words").click()
    assert page.locator("main img, dialog img, main b").count() == 0
    assert page.title() != "1" and page.errors == []
    assert "<b>m</b>" in page.locator("#sentence").inner_text()


def test_a_picture_has_any_name(open_page: Open, sources: str) -> None:
    classes = {
        "vocabulary": ["a\x01b", "m", "n"],
        "classes": [{"query": "m", "next": "n", "probs": {"a\x01b": 1}}],
    }
    page = open_page({"a": of_page(task={"classes": classes})}, address=sources)
    assert page.evaluate("import('/export.js').then((of) => of.png()).then((of) => of.size)") > 0


def test_words_can_be_edited_pasted_and_loaded(open_page: Open) -> None:
    page = open_page()
    page.get_by_role("button", name="Edit the words").click()
    dialog = page.locator("#words-dialog")
    dialog.get_by_label("Weight of the before won").fill("0")
    assert "the" not in page.evaluate("attnlabPage.document.task.classes.classes[0].probs")
    dialog.get_by_text("Paste a table").click()
    dialog.locator("textarea").fill("word,was → up,was → down\nthe,2,2\nsun,3,\nfog,,3")
    dialog.get_by_role("button", name="Use this table").click()
    classes = page.evaluate("attnlabPage.document.task.classes")
    assert classes["classes"][0] == {"query": "was", "next": "up", "probs": {"the": 2, "sun": 3}}
    text = "vocabulary: [a, no, m, n, o]\nclasses:\n" + "".join(
        f"  - {{query: m, next: {n}, probs: {{a: 0.5, no: 0.5}}}}\n" for n in "no"
    )
    file = {"name": "mine.yaml", "mimeType": "text/yaml", "buffer": text.encode()}
    dialog.locator("input[type=file]").set_input_files(file)
    page.wait_for_function("attnlabPage.document.task.classes.vocabulary.length === 5")
    bad = {**file, "name": "bad.json", "buffer": json.dumps({"vocabulary": 2}).encode()}
    dialog.locator("input[type=file]").set_input_files(bad)
    page.wait_for_function("document.querySelector('.problem').textContent")
    assert dialog.locator(".problem").inner_text() == "bad.json: classes: missing"
    table = {**file, "name": "mine.csv", "buffer": b"word,up,down,left\nthe,1,2,3\n"}
    dialog.locator("input[type=file]").set_input_files(table)
    page.wait_for_function("attnlabPage.document.task.classes.classes.length === 3")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Undo").click()
    assert page.evaluate("attnlabPage.document.task.classes.classes[0].next") == "up"
    assert page.locator("#control-common_mass").is_hidden()  # it does not apply to one's own words


def test_words_can_be_edited_with_the_keyboard(open_page: Open) -> None:
    """What is refused is said and stays; the focus goes on to the next field, and no row jumps."""
    page = open_page()
    page.get_by_role("button", name="Edit the words").click()
    dialog, problem = page.locator("#words-dialog"), page.locator("#words-dialog .problem")
    focus = "document.activeElement.getAttribute('aria-label')"
    dialog.get_by_label("Word goal").fill("match")
    page.keyboard.press("Tab")
    page.wait_for_function("document.querySelector('.problem').textContent")
    assert "“match” has a row already" in problem.inner_text()
    assert page.evaluate(focus) == "Weight of goal before won"
    dialog.get_by_label("Next word of kind 2").fill("won")
    page.keyboard.press("Tab")
    page.wait_for_function("document.querySelector('.problem').textContent.includes('column')")
    assert page.evaluate("attnlabPage.history.past.length") == 0
    dialog.get_by_label("Word goal").fill("score")
    page.keyboard.press("Tab")
    page.wait_for_function(f"{focus} === 'Weight of score before won'")
    assert page.evaluate("attnlabPage.document.task.classes.vocabulary[5]") == "score"
    assert problem.inner_text() == ""
    dialog.get_by_role("button", name="Add a word").click()
    assert page.evaluate(focus) == "Word word1"


def test_the_words_of_a_preset_have_names_and_can_be_added_to(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    page.get_by_role("button", name="Edit the words").click()
    page.get_by_role("button", name="Add a word").click()
    probs = page.evaluate("attnlabPage.document.task.classes.classes[0].probs")
    assert {"the", "match", "word1"} <= set(probs)


def test_what_is_too_long_for_a_link_is_a_file_that_brings_it_back(
    open_page: Open, tmp_path: Path
) -> None:
    names = [f"a word that is long {i}" for i in range(300)]
    classes = {
        "vocabulary": [*names, "m", "n"],
        "normalize": True,
        "classes": [{"query": "m", "next": "n", "probs": dict.fromkeys(names, 1)}],
    }
    page = open_page()
    run = of_page(task={"classes": classes})
    page.evaluate("(state) => attnlabPage.put(state)", {"a": run, "b": {**run, "eta_y": 5}})
    with page.expect_download() as download:
        page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("location.hash === ''")  # rather none than that of another run
    path = Path(download.value.path())
    again = open_page()
    again.get_by_role("button", name="Edit the words").click()
    file = {"name": "playground.json", "mimeType": "", "buffer": path.read_bytes()}
    again.locator("#words-file").set_input_files(file)
    again.wait_for_function("attnlabPage.state.b?.eta_y === 5")
    assert again.evaluate("attnlabPage.state") == page.evaluate("attnlabPage.state")
    path.rename(tmp_path / "playground.json")
    opened = opening(tmp_path / "playground.json")
    assert [Simulation.from_document(opened[name]).eta_y for name in "ab"] == [1, 5]
    assert opened["rungs"] == ["sgd", "polarisation-class"]


def test_two_runs_are_compared(open_page: Open) -> None:
    page = open_page({"a": FAMILY})
    place = page.locator("#controls").bounding_box()
    page.get_by_role("button", name="Compare").click()
    assert page.locator("#controls").bounding_box() == place  # nothing jumps
    turn(page, "eta_y", 9)
    assert page.evaluate("[attnlabPage.state.a.eta_y, attnlabPage.state.b.eta_y]") == [1, 20]
    go_to_end(page)
    widths = page.evaluate(
        "[...document.querySelectorAll('svg.bars rect.other')].map((r) => r.getAttribute('width'))"
    )
    assert max(map(float, widths)) > 10
    page.get_by_role("button", name="Stop comparing").click()
    assert page.evaluate("[attnlabPage.state.a.eta_y, attnlabPage.state.b]") == [20, None]


def test_theory_is_laid_over_and_says_where_it_is_silent(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    page.wait_for_function("document.querySelector('path.line.sgd').getAttribute('d')")
    page.locator("#rung-corrected").check()
    page.wait_for_function("document.querySelector('path.line.corrected').getAttribute('d')")
    page.locator("#control-optimizer").select_option("Adam")
    page.wait_for_function("document.getElementById('theory-note').textContent.includes('Adam')")


def test_the_theories_on_offer_are_those_that_speak_of_the_run(open_page: Open) -> None:
    page = open_page()
    shown = "label:visible:has([id^=rung-])"
    assert page.locator(shown).count() == 2
    page.get_by_role("button", name="One word takes all").click()
    page.locator("label:has(#rung-polarisation-class)").wait_for()
    assert page.locator(shown).count() == 1
    page.wait_for_function(
        "document.querySelector('path.theory-mark').getAttribute('visibility') === 'visible'"
    )
    page.get_by_role("button", name="Adam picks other words").click()
    page.wait_for_function("document.getElementById('theory-note').textContent.includes('Adam')")
    assert page.locator(shown).count() == 0


def test_the_stages_are_named_by_what_happens(open_page: Open) -> None:
    page = open_page()
    third = page.locator("#stages li >> nth=2")
    assert third.inner_text().endswith("A telling word wins")
    page.get_by_role("button", name="A shared word that wins").click()
    page.wait_for_function(  # beside the other card, where a telling one does
        "document.querySelectorAll('#stages li')[2].textContent === 'One word wins'"
    )


def test_the_tour_covers_nothing_that_it_explains(open_page: Open) -> None:
    for width in (1280, 390):
        page = open_page(width=width)
        page.locator("#tour").wait_for()  # offered, as nothing plays
        if width == 1280:
            page.get_by_role("button", name="Tour", exact=True).click()
        for _ in range(3):
            page.wait_for_timeout(100)
            tour, of = (page.locator(name).first.bounding_box() for name in ("#tour", ".toured"))
            assert tour["y"] + tour["height"] <= of["y"], width
            assert of["y"] + of["height"] <= 800, width
            page.locator("#tour button.main").click()


def test_what_the_page_does_not_compute_is_asked_of_attnlab(open_page: Open) -> None:
    flow = {**LIMIT, "motion": {"name": "flow", "time": 50}}
    page = open_page({"a": flow})
    go_to_end(page)
    expect_bars(page, flow)


def test_what_was_asked_of_attnlab_is_left_for_a_run_that_is_known(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    page.evaluate(
        """() => {
          globalThis.left = 0
          attnlabPage.api.simulate = (_, signal) => new Promise((_, reject) =>
            signal.addEventListener("abort", () => { left += 1; reject(signal.reason) }))
        }"""
    )
    page.evaluate(FLOW_FROM_NOW)
    page.wait_for_selector("#live.stale")
    page.get_by_role("button", name="Undo").click()
    page.wait_for_selector("#live:not(.stale)")
    assert page.evaluate("left") == 1 and page.locator("#problem").is_hidden()


def test_without_attnlab_the_page_says_which_command_shows_it(
    open_page: Open, sources: str
) -> None:
    residual = {**LIMIT, "model": {"name": "extended", "residual": True}}
    page = open_page({"a": residual}, address=sources, bars=False)
    page.locator("#problem code").first.wait_for()
    commands = page.locator("#problem code").all_inner_texts()
    assert commands[0] == "attnlab play"
    assert commands[1].startswith("attnlab simulate syn-small --length inf --steps 50")
    assert "--residual" in commands[1]


def in_a_frame(open_page: Open, folder: Path, asked: str = "") -> tuple[Any, Any]:
    """Open a page of a folder in which the playground is a frame."""
    (folder / "playground.html").write_text(single_page(), encoding="utf-8")
    (folder / "report.html").write_text(f'<iframe src="playground.html{asked}"></iframe>')
    page = open_page(address=(folder / "report.html").as_uri(), bars=False)
    frame = page.frame_locator("iframe")
    frame.locator("#live[data-drawn]").wait_for(state="attached")
    return page, frame


def test_as_one_file_it_works_from_a_folder(open_page: Open, tmp_path: Path) -> None:
    """Where a browser loads neither modules nor a worker: as in a report that is double-clicked."""
    page, _ = in_a_frame(open_page, tmp_path)
    assert not page.errors
    page = open_page({"a": LIMIT}, address=(tmp_path / "playground.html").as_uri())
    go_to_end(page)
    expect_bars(page, LIMIT)
    assert not page.errors


def test_it_takes_itself_along_as_one_file(open_page: Open, tmp_path: Path) -> None:
    """Its own address is of no use to others: it offers the file that it is."""
    page = open_page({"a": LIMIT}, strict=True)
    page.get_by_role("button", name="Copy link").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the page as one file").click()
    (tmp_path / "page.html").write_bytes(Path(download.value.path()).read_bytes())
    again = open_page(address=(tmp_path / "page.html").as_uri())
    assert again.evaluate("attnlabPage.state") == page.evaluate("attnlabPage.state")
    go_to_end(again)
    expect_bars(again, LIMIT)


def test_links_lead_to_a_published_page_where_one_is_named(open_page: Open, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    made = CliRunner().invoke(
        app, ["play", "syn-small", "--out", str(path), "--links", "https://example.org/play/"]
    )
    assert made.output == f"wrote {path}\n"
    page = open_page(address=path.as_uri())
    page.evaluate("navigator.clipboard.writeText = async (text) => { globalThis.copied = text }")
    page.get_by_role("button", name="Copy link").click()
    page.wait_for_function("globalThis.copied")
    assert page.evaluate("copied").startswith("https://example.org/play/#s=")


def test_embedded_it_shows_an_experiment_alone(open_page: Open, tmp_path: Path) -> None:
    """In a frame of a page that was opened from a folder, too."""
    page, frame = in_a_frame(open_page, tmp_path, "?embed#x=snap")
    assert frame.locator("#step-shown").inner_text().endswith("of 5,000")
    assert frame.locator(".toured").count() == 0  # no step of the hidden tour
    for part in ("header", "#experiments", "#paper", "#regression"):
        assert frame.locator(part).is_hidden()
    with page.expect_popup() as opened:
        frame.get_by_role("button", name="Open on a page of its own").click()
    assert "?embed" not in opened.value.url
    opened.value.wait_for_selector("header", state="visible")
    page = open_page(address=f"{(tmp_path / 'playground.html').as_uri()}#x=nothing")
    page.locator("#problem").wait_for()
    assert "no experiment is called nothing" in page.locator("#problem").inner_text()


SHIFTS = """
globalThis.shifts = 0
new PerformanceObserver((list) => list.getEntries().forEach((of) => { shifts += of.value }))
  .observe({ type: "layout-shift", buffered: true })
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_while_it_loads_and_plays(
    open_page: Open, server: Server, width: int
) -> None:
    page = open_page(address="about:blank", bars=False, width=width, motion=True)
    page.add_init_script(SHIFTS)
    page.goto(server.url)
    page.wait_for_function("globalThis.attnlabPage?.player.position > 10")
    assert page.evaluate("shifts") < 0.02


def test_on_a_phone_play_and_bars_come_first_and_nothing_sticks_out(open_page: Open) -> None:
    page = open_page(width=375)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.evaluate("document.querySelector('#beyond').open = true")
    small = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input[type=range], summary")]
          .filter((of) => of.offsetParent && of.getBoundingClientRect().height < 44)
          .map((of) => of.id || of.textContent)"""
    )
    assert small == []
    tops = [
        page.locator(name).bounding_box()["y"]
        for name in ("#play", "#classes", "#curves", "#panel")
    ]
    assert tops == sorted(tops)
    page.locator("#play").click()
    page.wait_for_function("attnlabPage.player.playing")
    page.evaluate("document.querySelector('[data-name=snap]').click()")
    chip = page.locator("#experiments [data-name=snap]").bounding_box()
    assert chip["x"] >= 0 and chip["x"] + chip["width"] <= 375
    page.evaluate("document.querySelector('[data-name=snap]').click()")
    # the same again is nothing to undo
    assert page.evaluate("attnlabPage.history.past.length") == 1
    top = page.locator(".sentence-card").bounding_box()["y"]
    page.evaluate("attnlabPage.edit((of) => ({ ...of, eta_y: 3 }), '')")
    assert page.locator("#look [aria-current]").inner_text().startswith("Your own setting")
    assert page.locator(".sentence-card").bounding_box()["y"] == top
    long = "Donaudampfschifffahrtsgesellschaftskapitaen"
    classes = {
        "vocabulary": [long, "m", "n"],
        "classes": [{"query": "m", "next": "n", "probs": {long: 1}}],
    }
    page.evaluate("(task) => attnlabPage.edit((of) => ({ ...of, task }), '')", classes)
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_the_keyboard_is_enough(open_page: Open) -> None:
    page = open_page({"a": FAMILY})
    page.locator("#control-eta_y").focus()
    before = drawn(page)
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"Number(document.getElementById('live').dataset.drawn) > {before}")
    assert page.evaluate("attnlabPage.document.eta_y") == 2
    page.keyboard.press("Control+z")
    page.wait_for_function("attnlabPage.document.eta_y === 1")
    page.locator("#kind").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("attnlabPage.state.first === 1")
    assert page.evaluate("document.activeElement.id") == "kind"
    page.locator("#stage").focus()
    page.keyboard.press(" ")
    page.wait_for_function("attnlabPage.player.playing")


def test_it_can_be_taken_along(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    go_to_end(page)
    kinds = {
        "Data (CSV)": b"step,class,query",
        "Picture (SVG)": b"<svg",
        "Picture (PNG)": b"\x89PNG",
        "Data (netCDF)": b"\x89HDF",
    }
    for name, begins in kinds.items():
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(begins)
        if name.startswith("Data (CSV"):
            last = content.decode().splitlines()[-1].split(",")
            assert float(last[0]) == 50 and 0 < float(last[7]) < 1


def test_an_animation_can_be_taken_along(open_page: Open, sources: str) -> None:
    page = open_page({"a": LIMIT}, address=sources)
    frames = page.evaluate(
        """async () => {
          const { gif } = await import("/export.js")
          const player = attnlabPage.player
          const blob = await gif((f) => player.go(f * player.last), () => {}, { frames: 3 })
          return [...new Uint8Array(await blob.arrayBuffer())]
        }"""
    )
    with Image.open(io.BytesIO(bytes(frames))) as picture:
        assert (picture.format, picture.n_frames) == ("GIF", 3)
        sizes = []
        for at in range(3):
            picture.seek(at)
            sizes.append(picture.size)
    assert len(set(sizes)) == 1


def test_the_code_on_show_is_what_runs(open_page: Open) -> None:
    page = open_page({"a": LIMIT})
    page.get_by_role("button", name="Show code").click()
    page.locator("#code-dialog code").first.wait_for()
    shell, python, _ = page.locator("#code-dialog code").all_inner_texts()
    assert shell.startswith("attnlab simulate syn-small --length inf --steps 50")
    help_text = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"}).output
    for option in (word for word in shell.split() if word.startswith("--")):
        assert option in help_text
    scope: dict[str, Any] = {}
    exec(python.replace("print(", "found = ("), scope)
    wanted = attnlab.simulate(Simulation.from_document(LIMIT))
    np.testing.assert_allclose(scope["result"]["attention"], wanted["attention"])


def test_the_code_of_every_experiment_is_its_simulation(
    open_page: Open, sources: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command line, the Python and the file make the value that the page shows."""
    monkeypatch.chdir(tmp_path)
    made: list[Simulation] = []

    def keep(given: Any, *, progress: Any = None, **settings: Any) -> Any:
        made.append(as_simulation(given, **settings))
        raise KeyboardInterrupt

    page = open_page(address=sources)
    shown = page.evaluate(
        """async () => {
          const { EXPERIMENTS, stateOf } = await import("/experiments.js")
          const { classesFile, commandLine, python, yaml } = await import("/code.js")
          const runs = EXPERIMENTS.map(stateOf).flatMap(({ a, b }) => b === null ? [a] : [a, b])
          const { motion } = runs[0]
          runs.push({ ...runs[0], record: { every: 7 }, model: { name: "extended", heads: 2, position: "learned" } })
          runs.push({ ...runs[0], record: { at: [0, 5] }, dtype: "float64", independent: true, seeds: [3],
            motion: { ...motion, clip: 0.5, optimizer: { name: "adamw", beta_1: 0.8 } } })
          runs.push({ task: "syn-small", motion: { name: "flow", time: 20, rtol: 1e-3 } })
          return Promise.all(runs.map(async (of) => [of, commandLine(of), python(of), await yaml(of), classesFile(of)]))
        }"""  # noqa: E501
    )
    monkeypatch.setattr(attnlab.simulation, "simulate", keep)
    monkeypatch.setattr(attnlab, "simulate", keep)
    for document, shell, python, yaml, file in shown:
        if file:
            Path("classes.json").write_text(file)
        Path("run.yaml").write_text(yaml)
        CliRunner().invoke(app, shlex.split(shell)[1:])
        with pytest.raises(KeyboardInterrupt):
            exec(python, {})
        CliRunner().invoke(app, ["simulate", "run.yaml"])
        wanted = Simulation.from_document(document)
        found = [replace(of, task=replace(of.task, classes=wanted.classes)) for of in made[-3:]]
        assert found == [wanted] * 3, (shell, python, yaml)
        assert all(of.sets == wanted.sets for of in made[-3:])
    assert len(made) == 3 * len(shown)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (375, True)])
def test_an_accessibility_check_finds_nothing(open_page: Open, width: int, dark: bool) -> None:
    page = open_page(width=width, dark=dark)
    page.evaluate(AXE.read_text())
    look = """async () => (await axe.run()).violations.map(
      (of) => `${of.id}: ${of.nodes.map((node) => node.html).join(" ").slice(0, 300)}`)"""
    go_to_end(page)
    assert page.evaluate(look) == []
    page.evaluate("document.querySelectorAll('details').forEach((of) => { of.open = true })")
    assert page.evaluate(look) == []
    page.get_by_role("button", name="Edit the words").click()
    assert page.evaluate(look) == []


def test_the_whole_page_is_small() -> None:
    assert len(single_page().encode()) < 600_000

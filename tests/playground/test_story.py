"""The page says of an experiment what it draws: at each record, by the bars on the screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

PARTS = (".sentence-card", "#player", "#stages", "#classes")
FLAT = 10  # pixels: a curve that is lower shows nothing
NEAR = 0.006  # of attention: what is printed is rounded to whole percent
DRAWN = 3e-4  # of attention: a bar is drawn to a tenth of a pixel

# at each record the words beside the stage, and the bars in shares of attention
PICTURES = """
() => {
  const all = (of, within = document) => [...within.querySelectorAll(of)]
  const text = (of) => of.textContent
  const read = (chart) => {
    const end = parseFloat(text(all(".bar-axis text", chart).at(-1))) / 100
    return all("[data-token]", chart).map((row) => {
      const [track, bar, other] = all("rect", row)
      const number = (of, name) => Number(of.getAttribute(name))
      const share = (width) => (width / number(track, "width")) * end
      const [, name, role] = /“(.*)”, a (\\w+) word/s.exec(text(row.querySelector("title")))
      return { name, shared: role === "shared", printed: text(row.querySelector(".value")),
        share: share(number(bar, "width")), of_a: share(number(other, "width")),
        often: share(number(row.querySelector(".start"), "x1") - number(track, "x")) }
    })
  }
  return [...attnlabPage.stage.main.result.steps].map((step, record) => {
    attnlabPage.player.go(record)
    const stages = all("#stages li")
    return { step, stages: stages.map(text),
      stage: stages.findIndex((of) => of.ariaCurrent === "step"),
      story: text(document.getElementById("story")),
      titles: all(".class-card h3").map(text), cards: all("svg.bars").map(read) }
  })
}
"""
HEIGHTS = """
() => [...document.querySelectorAll("svg.curve")].map((chart) =>
  Math.max(...[...chart.querySelectorAll("path.main, path.a")].map((of) => of.getBBox().height)))
"""
AS_OFTEN = "Before training, every word is looked at as often as it occurs."
STORY = re.compile(
    r"(?P<opening>.*\.) In “(?P<query>.+) → (?P<next>.+)” shared words get (?P<shared>\S+) of "
    r"attention(, from (?P<before>\S+) at the start)?(, and (?P<lead>.*))?\."
)
LEADS = re.compile(
    r"“(?P<name>.*)” (?P<verb>leads|has won) with (?P<share>\S+), from (?P<start>\S+)"
)
ALIKE = re.compile(r"(?P<count>\d+) words lead alike with (?P<share>\S+) each")


@dataclass
class Card:
    """The bars of one class: the shares of its words, of run A, before training, and as printed."""

    share: dict[str, float]
    of_a: dict[str, float]
    often: dict[str, float]
    printed: dict[str, str]
    common: set[str]

    @property
    def shared(self) -> float:
        return sum(self.share[name] for name in self.common)

    @property
    def shared_of_a(self) -> float:
        return sum(self.of_a[name] for name in self.common)

    @property
    def leader(self) -> str:
        return max(self.share, key=self.share.__getitem__)

    def moved(self, other: Card) -> float:
        return sum(abs(self.share[name] - other.share[name]) for name in self.share) / 2


def card(rows: list[dict[str, Any]]) -> Card:
    parts = {
        part: {row["name"]: row[part] for row in rows}
        for part in ("share", "of_a", "often", "printed")
    }
    return Card(**parts, common={row["name"] for row in rows if row["shared"]})


def told(share: str) -> float:
    """A percentage in words as a number."""
    return float(share.removeprefix("<").removesuffix("%")) / 100


def moved(cards: list[Card], others: list[Card]) -> float:
    return float(np.mean([one.moved(other) for one, other in zip(cards, others, strict=True)]))


def kind(cards: list[Card]) -> str:
    """The kind of word that leads in all cards."""
    if len(common := {of.leader in of.common for of in cards}) > 1:
        return "One word"
    return "A shared word" if common == {True} else "A telling word"


def expect_story(pictures: list[dict[str, Any]]) -> None:
    """The sentence and the stages of each record follow from its bars."""
    cards = [[card(rows) for rows in of["cards"]] for of in pictures]
    start, end = cards[0], cards[-1]
    shared = [np.mean([of.shared for of in now]) for now in cards]
    between = np.diff([of["step"] for of in pictures])
    speed = np.array([moved(*pair) for pair in pairwise(cards)]) / between
    blurred = DRAWN * len(start[0].share) / between
    for at, (of, now) in enumerate(zip(pictures, cards, strict=True)):
        where = (of["step"], of["story"])
        said = STORY.fullmatch(of["story"])
        assert said and said["query"] in of["titles"][0] and said["next"] in of["titles"][0], where
        unseen = 1 - sum(now[0].share.values())  # of words without a bar
        assert -NEAR < told(said["shared"]) - now[0].shared < NEAR + unseen, where
        assert at == 0 or f"get {said['before']} of" in pictures[0]["story"], where
        expect_lead(said["lead"], now[0], start[0], of["stage"])

        begun = [abs(of.share[name] - of.often[name]) for of in start for name in of.share]
        opening, next_at = said["opening"], min(at, len(speed) - 1)
        if opening.startswith("Before"):
            assert (max(begun) < NEAR) == (opening == AS_OFTEN), where
        elif opening.startswith("Hardly"):
            assert moved(now, start) < 0.02 + NEAR, where
        elif opening.startswith("The shared words"):
            assert shared[at] < shared[0], where
        elif opening.endswith("is ahead."):
            assert opening == f"{kind(now)} is ahead."
            assert now[0].share[now[0].leader] > start[0].share[now[0].leader], where
        elif "slowed down" in opening:
            assert speed[next_at] < 0.02 * speed.max() + blurred[next_at], where
        else:
            assert opening in ("Attention begins to choose.", "Attention goes on choosing.")

    assert (pictures[0]["stages"][1] == "Shared words fade") == (min(shared) < shared[0] - 0.03)
    word, _, verb = pictures[0]["stages"][2].rpartition(" ")
    if verb in ("leads", "wins"):
        assert (word, verb == "wins") == (kind(end), end[0].share[end[0].leader] > 0.5)


def expect_lead(words: str | None, now: Card, start: Card, stage: int) -> None:
    """Check that a sentence names the word with the longest bar, and its share."""
    assert (words is None) == (stage == 0)
    best = now.leader
    alike = [name for name in now.printed if now.printed[name] == now.printed[best]]
    if words and (one := LEADS.fullmatch(words)):
        assert (alike, one["share"]) == ([one["name"]], now.printed[best]), words
        assert told(one["start"]) == pytest.approx(start.share[best], abs=NEAR), words
        assert (one["verb"] == "has won") == (stage == 3 and now.share[best] > 0.5), words
    elif words:
        several = ALIKE.fullmatch(words)
        assert several and int(several["count"]) == len(alike) > 1, words
        assert several["share"] == now.printed[best], words


# what the words of an experiment claim, of its two cards at the end; hollow bars are run A
POINTS: dict[str, Callable[[Card, Card], bool]] = {
    "opening": lambda one, two: one.share["match"] > 0.5 < two.share["rain"],
    "slow-decoder": lambda one, _: one.shared < one.shared_of_a - 0.1,
    "shared": lambda one, _: 0.25 < one.shared < 0.4 and 0.27 < one.shared_of_a < 0.3,
    "adam": lambda one, _: one.leader != "match" == max(one.of_a, key=one.of_a.__getitem__),
    "alike": lambda one, _: one.of_a["match"] > 0.3 > 0.1 > one.share["match"],
    "short": lambda one, _: one.leader == "match" and one.of_a["match"] > one.often["match"],
    "snap": lambda one, _: one.share["match"] < 1.3 * one.often["match"],
    "common-wins": lambda one, _: one.share["today"] > one.often["today"] + 0.1,
    "text": lambda one, _: one.share["|"] > 5 * one.often["|"],
    "residual": lambda one, _: one.shared > one.shared_of_a + 0.3,
    "flow": lambda one, _: one.shared < 0.25,
    "joma": lambda one, _: one.share["match"] > 0.9 > 0.45 > one.of_a["match"],
    "polarisation": lambda one, two: one.share["match"] > 0.95 < two.share["rain"],
    "max-margin": lambda one, two: (
        one.share["of"] > 0.99 < two.share["wind"] and one.of_a["match"] > 0.5
    ),
    "freeze": lambda one, _: one.share["match"] > 0.95 and 0.45 < one.of_a["match"] < 0.55,
}


def test_every_experiment_shows_its_point_and_tells_what_it_draws(
    open_page: Callable[..., Any],
) -> None:
    page = open_page()
    places, seen = set(), set()
    for chip in page.locator("#experiments [data-name]").all():
        before = page.locator("#live").get_attribute("data-drawn")
        chip.click()
        page.wait_for_function(f"document.getElementById('live').dataset.drawn > {before}")
        name = page.evaluate("attnlabPage.state.experiment")
        assert page.locator("#problem").is_hidden(), name
        pictures = page.evaluate(PICTURES)
        expect_story(pictures)
        assert POINTS[name](*map(card, pictures[-1]["cards"])), name
        heights = page.evaluate(HEIGHTS)
        assert min(heights) > FLAT, name
        places.add(tuple(round(page.locator(of).bounding_box()["y"]) for of in PARTS))
        seen.add(name)
    assert seen == POINTS.keys()
    assert len(places) == 1, "the layout jumps"
    assert page.errors == []

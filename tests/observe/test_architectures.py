"""The benchmark of observe against every architecture: its outcomes, and that it can fail."""

import re

import pytest

from attnlab.observing import call

architectures = pytest.importorskip("benchmarks.architectures")


@pytest.mark.parametrize(
    "name, outcome, words",
    [
        ("llama", "agrees", "6 layers of LlamaForCausalLM, eager and sdpa"),
        ("bloom", "refused", "BloomAttention"),
        ("jamba", "in part", "3 layers .* it names model.layers.0 .JambaMambaDecoderLayer."),
        ("resnet", "no attention", "it has none"),
    ],
)
def test_an_outcome_of_each_kind(name, outcome, words):
    found, why = architectures.check(name)
    assert found == outcome
    assert re.search(words, why)


def test_a_misread_mask_is_found(monkeypatch):
    assert architectures.check("markuplm")[0] == "agrees"
    monkeypatch.setattr(call, "DROP", 1e8)  # its mask is -10,000
    outcome, why = architectures.check("markuplm")
    assert outcome == "WRONG" and "visible_keys off by" in why

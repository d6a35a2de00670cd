"""Corpora: what is read, how it is split into tokens, what is kept, what is refused."""

import sys
import time

import numpy as np
import pytest

from attnlab.tasks.text import open_corpus
from attnlab.tasks.text.corpus import cache_folder, count_vocabulary, read_arrays, split_words
from attnlab.tasks.text.sources import builtin_text

TEXT = "The cat sat.\nThe dog sat, too!\n" * 40


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_basic_english():
    said = "It's \"quoted\"; (see: p. 7), isn't it?\nYes!"
    expected = "it ' s quoted ( see p . 7 ) , isn ' t it ? yes !"
    assert list(split_words(said)) == expected.split()


def test_the_vocabulary_is_ordered_by_frequency_then_alphabet():
    words = ["b", "a", "c", "a", "b", "<unk>", "a", "d"]
    assert count_vocabulary(words) == ("<unk>", "a", "b", "c", "d")
    assert count_vocabulary(words, 3) == ("<unk>", "a", "b")


def test_a_file_gives_up_its_last_tenth(tmp_path):
    corpus = open_corpus(write(tmp_path / "cats.txt", TEXT))
    assert corpus.name == "cats.txt"
    assert corpus.vocabulary == ("<unk>", "sat", "the", "!", ",", ".", "cat", "dog", "too")
    whole = corpus.decode([*corpus.train, *corpus.validation])
    assert whole == " ".join(split_words(TEXT))
    assert 0.05 < len(corpus.validation) / (len(corpus.train) + len(corpus.validation)) < 0.15


def test_words_outside_the_training_part_are_unknown(tmp_path):
    held = write(tmp_path / "held.txt", "the zebra sat")
    corpus = open_corpus(write(tmp_path / "cats.txt", TEXT), validation=held, vocab_size=5)
    assert corpus.decode(corpus.validation) == "the <unk> sat"
    assert corpus.vocab_size == 5
    assert corpus.train.max() == 4
    assert corpus.unknown == 0
    with pytest.raises(ValueError, match="read-only"):
        corpus.train[0] = 1


@pytest.mark.parametrize(
    "names", [("train.txt", "valid.txt"), ("wiki.train.tokens", "wiki.valid.tokens")]
)
def test_a_folder_in_parts(tmp_path, names):
    write(tmp_path / names[0], "one two")
    write(tmp_path / names[1], "two three")
    write(tmp_path / "test.txt", "never read")
    corpus = open_corpus(tmp_path)
    assert corpus.decode(corpus.train) == "one two"
    assert corpus.decode(corpus.validation) == "two <unk>"


def test_a_plain_folder_is_one_text(tmp_path):
    write(tmp_path / "b.txt", "second " * 50)
    write(tmp_path / "a.txt", "first " * 50)
    corpus = open_corpus(tmp_path)
    assert corpus.decode(corpus.train).startswith("first first")
    assert len(corpus.train) + len(corpus.validation) == 100


def test_builtin_is_english_without_repetition():
    corpus = open_corpus("builtin")
    assert len(corpus.train) > 40_000
    assert corpus.vocabulary[1:3] in {("the", "."), (".", "the")}
    paragraphs = builtin_text().split("\n")
    assert len(set(paragraphs)) == len(paragraphs)
    assert not any(set(line) <= set("*=-~^") for line in paragraphs if len(line) > 2)


@pytest.mark.slow
def test_tokens_are_kept_by_content_and_made_again_when_damaged(tmp_path):
    path = write(tmp_path / "cats.txt", TEXT)
    first = open_corpus(path)
    (kept,) = (cache_folder() / "tokens").iterdir()
    moved = open_corpus(path.rename(tmp_path / "renamed.txt"))
    assert moved.digest == first.digest
    assert list((cache_folder() / "tokens").iterdir()) == [kept]

    whole = kept.read_bytes()
    for damaged in (whole[:-30], whole[:200] + b"\x00\x01" + whole[202:], b""):
        kept.write_bytes(damaged)
        again = open_corpus(tmp_path / "renamed.txt")
        np.testing.assert_array_equal(again.train, first.train)
        assert again.digest == first.digest
        assert kept.read_bytes() == whole

    # all that stands before the arrays, and a part of these
    for at in (*range(400), *range(400, len(whole), 17)):
        kept.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
        assert read_arrays(kept) is None, at

    write(tmp_path / "renamed.txt", TEXT + "more")
    assert open_corpus(tmp_path / "renamed.txt").digest != first.digest


def test_byte_pairs_know_every_text(tmp_path):
    pytest.importorskip("tokenizers", reason="byte pairs need the extra text")
    held = "A zebra — naïve?\n"
    corpus = open_corpus(
        write(tmp_path / "cats.txt", TEXT),
        tokens="bpe",
        vocab_size=262,
        validation=write(tmp_path / "held.txt", held),
    )
    assert corpus.vocab_size == 262
    assert corpus.decode(corpus.validation) == held
    assert corpus.decode(corpus.train) == TEXT
    assert len(corpus.train) < 0.7 * len(TEXT)  # pairs were learnt
    assert corpus.unknown is None


def test_an_absent_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"attnlab\[text\]"):
        open_corpus(write(tmp_path / "cats.txt", TEXT), tokens="bpe")
    with pytest.raises(ValueError, match=r"attnlab\[text\].*name that folder instead"):
        open_corpus("wikitext-2")


def test_offline_names_the_remedy_at_once(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="WikiText needs the extra text")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    begun = time.monotonic()
    with pytest.raises(ValueError, match=r"could not be downloaded \(.*wiki.train.tokens"):
        open_corpus("wikitext-103")
    assert time.monotonic() - begun < 10  # the hub's library tries again for half a minute
    assert not constants.HF_HUB_OFFLINE


def test_a_folder_of_that_name_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wikitext-2").mkdir()
    write(tmp_path / "wikitext-2" / "wiki.train.tokens", TEXT)
    assert open_corpus("wikitext-2").vocab_size == 9


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTNLAB_CACHE", str(write(tmp_path / "a file", TEXT)))
    with pytest.warns(UserWarning, match="the token cache is not used"):
        assert open_corpus(write(tmp_path / "cats.txt", TEXT)).vocab_size == 9


def test_clear_errors(tmp_path):
    write(tmp_path / "empty.txt", " \n")
    (tmp_path / "latin.txt").write_bytes(b"caf" + b"\xe9 au lait")
    (tmp_path / "wide.txt").write_bytes(TEXT.encode("utf-16"))
    (tmp_path / "wider.txt").write_bytes(TEXT.encode("utf-16-le"))  # each second byte is zero
    (tmp_path / "folder").mkdir()
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts" / "valid.txt", TEXT)
    for source, message in {
        "wide.txt": "wide.txt: not UTF-8 text, but UTF-16",
        "wider.txt": "wider.txt: not UTF-8 text, but UTF-16",
        "empty.txt": "empty.txt: empty",
        "latin.txt": r"latin.txt: not UTF-8 text at byte 3 \(0xe9\)",
        "folder": "no .txt file",
        "parts": "valid.txt but no train.txt",
    }.items():
        with pytest.raises(ValueError, match=message):
            open_corpus(tmp_path / source)
    with pytest.raises(FileNotFoundError, match="absent.txt: no such corpus"):
        open_corpus("absent.txt")
    with pytest.raises(FileNotFoundError, match="validation: nope.txt is not a file"):
        open_corpus("builtin", validation="nope.txt")
    with pytest.raises(ValueError, match="corpus: no name; give builtin, wikitext-2"):
        open_corpus("")
    with pytest.raises(ValueError, match="tokens: expected one of"):
        open_corpus("builtin", tokens="letters")
    with pytest.raises(ValueError, match="vocab_size: expected at least 2"):
        open_corpus("builtin", vocab_size=1)

"""`recipes/...` is found in any folder."""

from pathlib import Path

from attnlab.files.shipped import here_or_shipped, recipe_folder


def test_a_user_s_file_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = Path("recipes", "text-rates.yaml")
    assert here_or_shipped(named) == recipe_folder() / "text-rates.yaml"
    (tmp_path / "recipes").mkdir()
    (tmp_path / named).touch()
    assert here_or_shipped(named) == named
    for absent in (Path("recipes", "nothing.yaml"), Path("mine", "text-rates.yaml")):
        assert here_or_shipped(absent) == absent

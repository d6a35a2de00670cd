"""The animation: frames that move, in a file of modest size."""

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from attnlab import plots
from attnlab.files.errors import InputError
from attnlab.plots.animation import LAST, MOST_FRAMES


def result(steps):
    """Two classes of three words; the first is common and fades."""
    p = np.array([[0.6, 0.4, 0, 0, 0, 0], [0.6, 0, 0.4, 0, 0, 0]])
    lost = 0.5 * np.arange(steps) / steps
    attention = np.repeat(p[None], steps, 0)
    attention[..., 0] -= lost[:, None]
    attention[:, 0, 1] += lost
    attention[:, 1, 2] += lost
    return xr.Dataset(
        {
            "attention": (("step", "sequence_class", "token"), attention),
            "probability": (("sequence_class", "token"), p),
        },
        {
            "step": range(steps),
            "token": ["the", "goal", "rain", "was", "won", "cold"],
            "token_id": ("token", range(6)),
            "sequence_class": [0, 1],
            "query_token": ("sequence_class", [3, 3]),
            "next_token": ("sequence_class", [4, 5]),
            "query_name": ("sequence_class", ["was", "was"]),
            "next_name": ("sequence_class", ["won", "cold"]),
        },
    )


def test_bars_move_and_frames_are_few(tmp_path):
    fractions = []
    plots.animate(result(5000), tmp_path / "run.gif", classes="won", progress=fractions.append)
    assert fractions[-1] == 1.0 and len(fractions) > 30
    assert [path.name for path in tmp_path.iterdir()] == ["run.gif"]
    assert (tmp_path / "run.gif").stat().st_size < 400_000
    with Image.open(tmp_path / "run.gif") as picture:
        assert 30 < picture.n_frames <= MOST_FRAMES
        orange = []
        for frame in (0, picture.n_frames - 1):
            picture.seek(frame)
            pixels = np.asarray(picture.convert("RGB"))
            orange.append(int((pixels == (230, 159, 0)).all(-1).sum()))
        assert pixels[0, 0].tolist() == [255, 255, 255]
        assert orange[1] < 0.7 * orange[0]  # the common word fades
        assert picture.info["duration"] == LAST
        assert picture.info["loop"] == 0


def test_a_name_of_another_kind_is_refused_and_nothing_written(tmp_path):
    with pytest.raises(InputError, match="path: the name should end in .gif, got .*run.mp4"):
        plots.animate(result(3), tmp_path / "run.mp4")
    with pytest.raises(InputError, match="did you mean 'goal'"):
        plots.animate(result(3), tmp_path / "run.gif", tokens="gaol")
    assert not list(tmp_path.iterdir())

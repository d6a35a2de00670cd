"""Options that several verbs take."""

from pathlib import Path

import pytest

from attnlab.cli.options import drawn
from attnlab.files.errors import InputError


def test_what_is_drawn_goes_by_number_or_by_name():
    assert drawn("0, won", None, Path("x.png")) == {"classes": [0, "won"]}
    assert drawn(None, "the,3", None, Path("x.gif")) == {"tokens": ["the", 3]}
    assert drawn(None, None, None) == {}
    with pytest.raises(InputError, match="show-classes: of a drawing"):
        drawn("0", None, None)

"""Sealed JSON: any tool reads it, and no bit of it changes unnoticed."""

import json

import pytest

from attnlab.files.netcdf import DamagedFile
from attnlab.files.sealed import read_sealed, seal, unseal, write_sealed

CONTENT = {"group": "ab\n\u20ac", "runs": [1, 2.5, None], "sha": {"256": True}}


def test_what_is_sealed_comes_back_and_is_a_line_of_json():
    line = seal(CONTENT)
    assert unseal(line) == CONTENT
    assert line.count(b"\n") == 1
    assert json.loads(line).keys() == {*CONTENT, "sha256"}


def test_every_bit_is_noticed():
    line = seal(CONTENT)
    for place in range(len(line)):
        for bit in range(8):
            changed = bytearray(line)
            changed[place] ^= 1 << bit
            with pytest.raises(ValueError, match="checksum"):
                unseal(bytes(changed))
        with pytest.raises(ValueError, match="checksum"):
            unseal(line[:place])


def test_a_damaged_file_is_named_with_the_remedy(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(FileNotFoundError, match="plan.json: no such file"):
        read_sealed(path, remedy="plan again")
    write_sealed(path, CONTENT)
    assert read_sealed(path, remedy="plan again") == CONTENT
    path.write_bytes(path.read_bytes().replace(b"2.5", b"3.5"))
    with pytest.raises(DamagedFile, match="plan.json: damaged .*; plan again"):
        read_sealed(path, remedy="plan again")

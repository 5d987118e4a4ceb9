import os
import re
import time

import pytest

from glstm import forms
from glstm.errors import UserError
from glstm.forms import entries, flag, items, maybe, number, one_of, parse, read_json, text, whole

RUN = entries({"epoch": whole(1), "loss": number()}, {"name": maybe(text)}, others=flag)


@pytest.mark.parametrize(
    ("json", "says"),
    {
        "[" * 50_000: "nested too deeply",
        "[" * 200 + "]" * 200: "nested deeper than 100 levels",
        "1" * 5000: "a whole number of 5000 digits, 1111111111...",
        str(2**64 + 1): "a whole number of 20 digits",
        '{"a": 1, "b": 2, "a": 3}': "'a' twice in one object",
        "{": "Expecting property name",
        '"abc': "Unterminated string",
    }.items(),
)  # fmt: skip
def test_json_that_other_code_would_stumble_over_is_refused(json, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse(json)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "it should be an object of names and values, not []"),
        ({"loss": 1}, "it has no epoch"),
        ({"epoch": 2.5, "loss": 1}, "epoch should be a whole number from 1 to"),
        ({"epoch": True, "loss": 1}, "epoch should be a whole number"),
        ({"epoch": 1, "loss": float("nan")}, "loss should be a finite number, not nan"),
        ({"epoch": 1, "loss": 1, "name": 1}, "name should be a text, not 1"),
        ({"epoch": 1, "loss": 1, "else": 0}, "else should be true or false, not 0"),
    ],
)
def test_a_form_says_what_should_be_where(value, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        RUN(value, "")


def test_what_has_the_form_passes():
    RUN({"epoch": 1, "loss": -2, "name": None, "more": True}, "")
    items(RUN, least=1)([{"epoch": 3, "loss": 0.5}], "rows")
    with pytest.raises(ValueError, match=re.escape("rows[1].epoch should be a whole number")):
        items(RUN)([{"epoch": 3, "loss": 0.5}, {"epoch": 0, "loss": 0.5}], "rows")
    with pytest.raises(ValueError, match="a should be one of x, y, not 'z'"):
        one_of("x", "y")("z", "a")
    with pytest.raises(ValueError, match="which nobody knows"):
        entries({})({"a": 1}, "")


def test_a_file_is_read_up_to_its_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    with pytest.raises(UserError, match=r"a.json is not a result: No such file"):
        read_json(path, "a result", RUN)
    path.write_text('["a"]')
    with pytest.raises(UserError, match=r"a.json is not a result: it should be an object of names and values"):
        read_json(path, "a result", RUN)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"can't decode"):
        read_json(path, "a result", RUN)
    monkeypatch.setattr(forms, "MOST_BYTES", 2**20)
    path.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(UserError, match="longer than 1 MiB"):
        read_json(path, "a result", RUN)
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    with pytest.raises(UserError, match="it is not a file"):
        read_json(tmp_path / "pipe", "a result", RUN)
    assert time.monotonic() - began < 1

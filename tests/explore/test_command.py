"""The command and what the page is made of, without a browser."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from glstm import GLSTM, SequenceModel
from glstm.cli.main import app
from glstm.errors import UserError
from glstm.explore.ladder import MEASURED, levels, positions
from glstm.explore.server import make_server


def test_levels_are_torchs_comparisons():
    thresholds = positions([0.0123])
    assert len(thresholds) < 256
    assert {0.0123, *MEASURED} <= set(thresholds)
    k = torch.cat((torch.rand(4000) ** 4, torch.tensor(thresholds), torch.zeros(1), torch.ones(1)))
    found = torch.from_numpy(levels(k.numpy(), thresholds))
    for position, threshold in enumerate(thresholds):
        assert torch.equal(found > position, ~(k <= threshold))


def test_the_server_gives_the_page_to_this_machine_alone():
    server = make_server("<p>ü")
    with pytest.raises(UserError, match=f"--port {server.server_port} cannot be used"):
        make_server("", server.server_port)
    assert server.server_address[0] == "127.0.0.1"
    server.server_close()


def test_serving_until_ctrl_c(tmp_path):
    SequenceModel(GLSTM(1, 3, mu=(1, 9), sigma=2.0), nn.Linear(3, 1)).save_pretrained(tmp_path / "model")
    command = [sys.executable, "-m", "glstm", "explore", tmp_path / "model", "--steps", "9", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        address = server.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert b"glstm explore" in answer.read()
        for other in (f"{address}data", urllib.request.Request(address, headers={"Host": "example.org:80"})):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(other)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()
        server.stdout.close()
        server.wait()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a", "b", "c", "d", "e"], "a page shows up to 4 networks side by side, not 5"),
        (["a", "--static", "x.html", "--port", "80"], "--static writes a file and serves nothing"),
        (["a", "--static", "theirs.html"], "theirs.html is there, and glstm explore did not write it"),
        (["a"], "a is not there; a run is a folder that glstm train made"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("theirs.html").write_text("mine")
    done = CliRunner().invoke(app, ["explore", *arguments])
    assert isinstance(done.exception, UserError)
    assert sentence in str(done.exception)
    assert Path("theirs.html").read_text() == "mine"

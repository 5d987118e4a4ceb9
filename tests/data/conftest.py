"""Small data sets made by hand, and no way out of this machine."""

import hashlib
import subprocess
from collections.abc import Callable
from typing import Any

import pooch
import pytest

from glstm.data.files import DataFile, DataSet


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path_factory):
    """AssertionError is none of the errors `fetch` forgives, so an attempt fails the test instead of passing by."""

    def refuse(*arguments, **_):
        raise AssertionError(f"a test went for the network: {arguments}")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # nor into the user's cache


@pytest.fixture
def dataset_of() -> Callable[..., DataSet]:
    """Makes a data set that knows exactly the contents given by file name."""

    def make(contents: dict[str, bytes], **fields: Any) -> DataSet:
        files = tuple(
            DataFile(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()
        )
        return DataSet(
            **{"name": "small", "title": "Small", "folders": ("small", "", "other/raw"), **fields}, files=files
        )

    return make

import gzip
import os
import resource
import time
from pathlib import Path

import pooch
import pytest

from glstm.data.files import FOLDER_VARIABLE, data_folder, find, missing, read, read_all, refuse_pickles
from glstm.errors import DataError

CONTENTS = {"alpha": b"the content of alpha " * 50, "beta": b"beta has a shorter one " * 20}
FETCH = "glstm data fetch small"


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def dataset(dataset_of):
    return dataset_of(CONTENTS)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("folder", ["small", "", "other/raw"])
def test_a_file_is_found_in_each_folder_layout(dataset, tmp_path, folder, ending):
    path = put(tmp_path / folder / f"alpha{ending}", b"found, not read")
    alpha, beta = dataset.files
    assert find(dataset, alpha, tmp_path) == path
    assert find(dataset, beta, tmp_path) is None
    assert missing(dataset, tmp_path) == [beta]


def test_the_first_folder_and_the_plain_file_go_first(dataset, tmp_path):
    alpha = dataset.files[0]
    for folder in ("other/raw", "", "small"):
        for name in ("alpha.gz", "alpha"):
            path = put(tmp_path / folder / name, b"")
            assert find(dataset, alpha, tmp_path) == path


def test_a_folder_of_the_right_name_is_no_file(dataset, tmp_path):
    (tmp_path / "small" / "alpha").mkdir(parents=True)
    assert find(dataset, dataset.files[0], tmp_path) is None


def test_data_folder_is_the_argument_then_the_environment_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "environment"))
    assert FOLDER_VARIABLE == "GLSTM_DATA"
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder(str(tmp_path / "given")) == tmp_path / "given"
    assert data_folder() == tmp_path / "environment"
    for unset in (lambda: monkeypatch.setenv(FOLDER_VARIABLE, ""), lambda: monkeypatch.delenv(FOLDER_VARIABLE)):
        unset()
        assert data_folder() == Path(pooch.os_cache("glstm"))


def test_data_folder_knows_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(FOLDER_VARIABLE, "~/sets")
    assert data_folder() == tmp_path / "sets"
    assert data_folder("~/mine") == tmp_path / "mine"


@pytest.mark.parametrize(
    "pack", [lambda content: gzip.compress(content, 1), lambda content: gzip.compress(content, 9, mtime=0)]
)
def test_gzipped_content_counts_whoever_compressed_it(dataset, tmp_path, pack):
    path = put(tmp_path / "alpha.gz", pack(CONTENTS["alpha"]))
    assert read(dataset, dataset.files[0], path) == CONTENTS["alpha"]


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


ALPHA, ALPHA_GZ = CONTENTS["alpha"], gzip.compress(CONTENTS["alpha"], mtime=0)
BROKEN = {
    "truncated plain": ("alpha", ALPHA[:-50], ["truncated", "1,000 bytes", "1,050 belong"]),
    "empty plain": ("alpha", b"", ["truncated", "0 bytes"]),
    "too long": ("alpha", ALPHA + b"!", ["too long", "more than the 1,050 bytes"]),
    "corrupt plain of the right size": ("alpha", damaged(ALPHA, 500), ["corrupt", "SHA-256"]),
    "mislabelled": ("alpha", CONTENTS["beta"], ["mislabelled", "content of beta"]),
    "mislabelled gzip": ("alpha.gz", gzip.compress(CONTENTS["beta"]), ["mislabelled", "content of beta"]),
    "gzip truncated in its stream": ("alpha.gz", ALPHA_GZ[: len(ALPHA_GZ) // 2], ["truncated", "ends early"]),
    "gzip truncated in its header": ("alpha.gz", ALPHA_GZ[:5], ["truncated", "ends early"]),
    "gzip truncated in its checksum": ("alpha.gz", ALPHA_GZ[:-3], ["truncated", "ends early"]),
    "empty gzip": ("alpha.gz", b"", ["truncated", "0 bytes"]),
    "gzip of truncated content": ("alpha.gz", gzip.compress(ALPHA[:-50]), ["truncated", "1,000 bytes"]),
    "gzip with a damaged block": ("alpha.gz", damaged(ALPHA_GZ, 10), ["corrupt", "invalid"]),
    "gzip with a damaged checksum": ("alpha.gz", damaged(ALPHA_GZ, len(ALPHA_GZ) - 8), ["corrupt", "CRC"]),
    "no gzip at all": ("alpha.gz", ALPHA, ["corrupt", "Not a gzipped file"]),
    "gzip of corrupt content": ("alpha.gz", gzip.compress(damaged(ALPHA, 500)), ["corrupt", "SHA-256"]),
}


@pytest.mark.parametrize(("name", "content", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_name_with_advice(dataset, tmp_path, name, content, words):
    path = put(tmp_path / "small" / name, content)
    put(tmp_path / "small" / "beta", CONTENTS["beta"])
    with pytest.raises(DataError) as refusal:
        read_all(dataset, tmp_path)
    for word in (str(path), *words, "delete it", FETCH):
        assert word in str(refusal.value)


def test_a_small_file_that_unpacks_to_much_is_refused_at_once(dataset, tmp_path):
    """8 MB of it took 17 GB and a minute."""
    path = put(tmp_path / "alpha.gz", gzip.compress(bytes(2**29), 1))
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=r"alpha\.gz is too long: more than the 1,050 bytes that belong there"):
        read(dataset, dataset.files[0], path)
    assert time.monotonic() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_file_that_cannot_be_read_is_named(dataset, tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read: Is a directory"):
        read(dataset, dataset.files[0], tmp_path)


def test_read_all_gives_every_file_from_wherever_it_lies(dataset, tmp_path):
    put(tmp_path / "alpha", CONTENTS["alpha"])
    put(tmp_path / "other" / "raw" / "beta.gz", gzip.compress(CONTENTS["beta"]))
    assert read_all(dataset, tmp_path) == CONTENTS


def test_read_all_names_what_is_missing_and_only_that(dataset, tmp_path):
    put(tmp_path / "alpha", CONTENTS["alpha"])
    with pytest.raises(DataError) as refusal:
        read_all(dataset, tmp_path)
    for word in (str(tmp_path), ": beta missing", FETCH, "--data", "GLSTM_DATA"):
        assert word in str(refusal.value)


def test_read_all_names_all_that_is_missing(dataset, tmp_path):
    with pytest.raises(DataError, match="alpha, beta missing"):
        read_all(dataset, tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("folder", ["small", "", "other/raw"])
def test_a_pickled_version_is_refused_in_each_folder_layout(dataset_of, tmp_path, folder):
    dataset = dataset_of(CONTENTS, pickles=("pickled.tar",))
    refuse_pickles(dataset, tmp_path)
    path = put(tmp_path / folder / "pickled.tar", b"")
    with pytest.raises(DataError) as refusal:
        refuse_pickles(dataset, tmp_path)
    for word in (str(path), "pickle", "run any code", "binary version", FETCH):
        assert word in str(refusal.value)

import gzip
import io
import json
import tarfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from glstm.data import CIFAR10, SequentialCIFAR10, cifar
from glstm.data.cifar import ARCHIVE, RECORD, load, parse_records
from glstm.data.fetch import fetch
from glstm.data.files import Source, read_all
from glstm.errors import DataError
from glstm.storage import cache_folder


def records(labels: list[int], seed: int = 0) -> tuple[bytes, np.ndarray]:
    """The bytes of a batch, and its images as (N, 32, 32, 3)."""
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 32, 32, 3), np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return np.concatenate((np.array(labels, np.uint8)[:, None], planes), 1).tobytes(), images


NAMES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
SMALL = {name: records([number, 9 - number], seed=number)[0] for number, name in enumerate(NAMES)}


def test_parse_records_turns_planes_into_pixels():
    content, expected = records([3, 0, 9])
    images, labels = parse_records(content, "batch")
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert images.shape == (3, 1024, 3)
    assert (images.numpy() == expected.reshape(3, 1024, 3)).all()
    assert labels.tolist() == [3, 0, 9]


def test_the_planes_are_red_green_blue_and_read_row_by_row():
    content = bytes([7]) + bytes(range(256)) * 4 + bytes([100]) * 1024 + bytes([200]) * 1024
    image = parse_records(content, "batch")[0][0]
    assert image[[0, 1, 32, 255, 256]].tolist() == [[red, 100, 200] for red in (0, 1, 32, 255, 0)]


GOOD = records([1, 2])[0]
BROKEN = {
    "empty": (b"", "has 0 bytes"),
    "a byte short": (GOOD[:-1], "has 6,145 bytes.* whole number of 3073-byte records"),
    "a byte long": (GOOD + b"\0", "has 6,147 bytes.* whole number of 3073-byte records"),
    "label 10": (records([1, 10, 2])[0], "has a label of 10,.* 0 to 9"),
    "label 255": (records([255])[0], "has a label of 255,.* 0 to 9"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_parse_records_refuses(content, reason):
    with pytest.raises(DataError, match=f"^some-file {reason}"):
        parse_records(content, "some-file")


@pytest.mark.parametrize("place", [f"{folder}{name}" for folder in ("", "cifar10/") for name in CIFAR10.pickles])
def test_the_python_version_is_refused_because_it_is_a_pickle(tmp_path, place):
    path = tmp_path / place
    if path.name == "cifar-10-batches-py":
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with pytest.raises(DataError) as refusal:
        load(tmp_path)
    for word in (str(path), "CIFAR-10's python version", "pickle", "binary version", "glstm data fetch cifar10"):
        assert word in str(refusal.value)


def test_the_names_of_the_python_version():
    assert {"cifar-10-batches-py", "cifar-10-python.tar.gz"} < set(CIFAR10.pickles)


def archive(contents: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


@pytest.fixture
def small(dataset_of):
    """Small batches where CIFAR-10's would be; the only source is the archive that people put there themselves."""
    return dataset_of(SMALL, name="cifar10", title="CIFAR-10", folders=CIFAR10.folders, sources=CIFAR10.sources[:1])


def test_an_archive_in_the_data_folder_is_enough(small, tmp_path):
    (tmp_path / ARCHIVE).write_bytes(archive({"readme.html": b"<html>", **SMALL}))
    splits = load(tmp_path, small)
    assert splits["train"][1].tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert splits["test"][1].tolist() == [5, 4]
    for number in range(6):
        stored = splits["test"][0] if number == 5 else splits["train"][0][2 * number : 2 * number + 2]
        assert (stored.numpy() == records([0, 0], seed=number)[1].reshape(2, 1024, 3)).all()
    assert sorted(path.name for path in (cache_folder() / "cifar10").iterdir()) == NAMES
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [ARCHIVE]  # a named folder is not written to


@pytest.mark.parametrize("folder", ["cifar10", "cifar-10-batches-bin", ""])
def test_batches_already_unpacked_are_read_where_they_lie(small, tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, content in SMALL.items():
        (tmp_path / folder / name).write_bytes(content)
    assert load(tmp_path, small)["train"][0].shape == (10, 1024, 3)


def broken_half_way(packed: bytes) -> bytes:
    """The first half is sound; then comes a block of a type that does not exist, and no decompressor goes on."""
    content, pack = gzip.decompress(packed), zlib.compressobj(wbits=31)
    return pack.compress(content[: len(content) // 2]) + pack.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 1000


REGULAR = {name: name.encode() * 20_000 for name in NAMES}
PACKED = archive(REGULAR)
DAMAGED = {
    "empty": b"",
    "no archive": b"<html>404</html>" * 100,
    "truncated": PACKED[: len(PACKED) // 2],
    "damaged": broken_half_way(PACKED),
    "wrong content": archive({**REGULAR, "test_batch.bin": b"wrong"}),
    "no such batch": archive({name: content for name, content in REGULAR.items() if name != "test_batch.bin"}),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_after_a_bad_archive_the_next_source_is_tried(dataset_of, tmp_path, content, capsys):
    (tmp_path / ARCHIVE).write_bytes(content)
    next_source = Source("the next one", lambda _: iter(REGULAR.items()))
    dataset = dataset_of(REGULAR, folders=CIFAR10.folders, sources=(CIFAR10.sources[0], next_source))
    fetch(dataset, tmp_path)
    assert capsys.readouterr().err.splitlines() == [
        f"Small: trying {ARCHIVE} in the data folder ...",
        "Small: trying the next one ...",
    ]
    assert read_all(dataset, tmp_path) == REGULAR


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_bad_archive_is_named(dataset_of, tmp_path, content):
    (tmp_path / ARCHIVE).write_bytes(content)
    dataset = dataset_of(REGULAR, folders=CIFAR10.folders, sources=CIFAR10.sources[:1])
    with pytest.raises(DataError, match=f"{ARCHIVE} in the data folder: .+; put"):
        fetch(dataset, tmp_path)
    assert not (tmp_path / "cifar10" / "test_batch.bin").exists()


def test_the_home_is_asked_for_the_archive(monkeypatch, tmp_path):
    asked = []

    def download(*arguments: str) -> bytes:
        asked.append(arguments)
        return archive(SMALL)

    monkeypatch.setattr(cifar, "download", download)
    assert dict(CIFAR10.sources[1].contents(tmp_path)) == SMALL
    assert asked == [(f"{cifar.HOME}/cifar-10-binary.tar.gz", cifar.ARCHIVE_SHA256)]


def test_pictures_become_the_official_batches(monkeypatch, tmp_path):
    draws = np.random.default_rng(0)
    # One pattern in six sets of colours: as different as need be, and much quicker to compress than six patterns.
    pattern = draws.integers(0, 256, (10_000, 1024), np.uint8)
    colours = draws.integers(0, 256, (6, 256, 3), np.uint8)
    labels = draws.integers(0, 10, (6, 10_000), np.uint8)
    package = {
        "train_lables.json": json.dumps(labels[:5].flatten().tolist()).encode(),
        "test_lables.json": json.dumps(labels[5].tolist()).encode(),
    }
    for name, palette in zip(NAMES, colours, strict=True):
        picture, stream = Image.fromarray(pattern).convert("P"), io.BytesIO()
        picture.putpalette(palette.tobytes())
        picture.save(stream, "png", compress_level=0)
        package[name.replace(".bin", ".png")] = stream.getvalue()
    asked = []
    monkeypatch.setattr(cifar, "npm_package", lambda name: asked.append(name) or iter(package.items()))
    seen = []
    for number, (name, content) in enumerate(CIFAR10.sources[2].contents(tmp_path)):
        seen.append(name)
        assert len(content) == 10_000 * RECORD
        batch = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        assert (batch[:, 0] == labels[number]).all()
        for row in (0, 1, 5_000, 9_999):
            assert (batch[row, 1:].reshape(3, 1024) == colours[number][pattern[row]].T).all()
    assert seen == NAMES
    assert asked == [cifar.NPM_PACKAGE]


def test_real_sequential_cifar(real_cifar):
    task = SequentialCIFAR10(real_cifar)
    assert (task.train_size, task.test_size, task.steps, task.inputs) == (50_000, 10_000, 1024, 3)
    for split, first, each in (("train", [6, 9, 9, 4, 1], 5_000), ("test", [3, 8, 8, 0, 6], 1_000)):
        images, labels = task._splits[split]
        assert images.dtype == torch.uint8
        assert labels[:5].tolist() == first
        assert labels.bincount().tolist() == [each] * 10
    x, _ = task.batch("test", 4, 0, 0, 0)
    assert x.shape == (1024, 4, 3)
    assert 0 <= x.min() < x.max() <= 1


def test_real_sequential_cifar_can_be_cut_short(real_cifar):
    task = SequentialCIFAR10(real_cifar, train_size=12, test_size=5)
    assert (task.train_size, task.test_size) == (12, 5)
    assert sum(len(y) for _, y in task.batches("train", 8)) == 12

import gzip
import hashlib
import struct

import numpy as np
import pytest
import torch

from glstm.data import MNIST, PermutedMNIST, SequentialMNIST, mnist
from glstm.data.images import PixelTask
from glstm.data.mnist import PERMUTATION_SEED, load, parse_idx, permutation
from glstm.errors import DataError


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + struct.pack(f">B{array.ndim}I", array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


PIXELS = np.random.default_rng(0).integers(0, 256, (9, 4, 3))
SMALL = {
    "train-images-idx3-ubyte": idx(PIXELS[:6]),
    "train-labels-idx1-ubyte": idx(np.array([5, 0, 4, 1, 9, 2])),
    "t10k-images-idx3-ubyte": idx(PIXELS[6:]),
    "t10k-labels-idx1-ubyte": idx(np.array([7, 2, 1])),
}


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4), (0, 28, 28), (300, 1)])
def test_parse_idx_gives_the_declared_shape_and_bytes(shape):
    expected = np.random.default_rng(1).integers(0, 256, shape)
    parsed = parse_idx(idx(expected), "file")
    assert parsed.dtype == torch.uint8
    assert parsed.shape == shape
    assert (parsed.numpy() == expected).all()


GOOD = idx(np.arange(6).reshape(2, 3))
BROKEN = {
    "empty": (b"", "not an IDX file"),
    "only half a magic": (GOOD[:3], "not an IDX file"),
    "first bytes not zero": (b"\x01" + GOOD[1:], "not an IDX file of unsigned bytes: it begins with 01 00 08 02"),
    "signed bytes": (b"\0\0\x09" + GOOD[3:], "not an IDX file of unsigned bytes: it begins with 00 00 09 02"),
    "still gzipped": (gzip.compress(GOOD), "not an IDX file of unsigned bytes: it begins with 1f 8b"),
    "truncated by a byte": (GOOD[:-1], r"shape \(2, 3\), 18 bytes, but has 17"),
    "nothing but the head": (GOOD[:12], r"shape \(2, 3\), 18 bytes, but has 12"),
    "too long by a byte": (GOOD + b"\0", r"shape \(2, 3\), 18 bytes, but has 19"),
    "head ends after the magic": (GOOD[:4], "declares .* but has 4"),
    "head ends between sizes": (GOOD[:8], "declares .* but has 8"),
    "head ends inside a size": (GOOD[:10], "declares .* but has 10"),
    "rank longer than the content": (b"\0\0\x08\xff" + GOOD[4:], "declares .* but has 18"),
    "sizes whose product overflows 64 bits": (b"\0\0\x08\x04" + 4 * b"\0\1\0\0", "declares .* but has 20"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_parse_idx_refuses(content, reason):
    with pytest.raises(DataError, match=f"^some-file .*{reason}"):
        parse_idx(content, "some-file")


@pytest.mark.parametrize("gzipped", [False, True])
def test_load_reads_the_four_files_plain_or_gzipped(dataset_of, tmp_path, gzipped):
    (tmp_path / "mnist").mkdir()
    for name, content in SMALL.items():
        path = tmp_path / "mnist" / (f"{name}.gz" if gzipped else name)
        path.write_bytes(gzip.compress(content) if gzipped else content)
    splits = load(tmp_path, dataset_of(SMALL, folders=MNIST.folders))
    for split, pixels, digits in (("train", PIXELS[:6], [5, 0, 4, 1, 9, 2]), ("test", PIXELS[6:], [7, 2, 1])):
        images, labels = splits[split]
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert images.shape == (len(digits), 12, 1)
        assert (images.numpy() == pixels.reshape(-1, 12, 1)).all()
        assert labels.tolist() == digits


@pytest.mark.parametrize(("prefix", "images"), [("train", 6), ("t10k", 3)])
def test_load_refuses_another_number_of_labels_than_images(dataset_of, tmp_path, prefix, images):
    contents = {**SMALL, f"{prefix}-labels-idx1-ubyte": idx(np.zeros(5))}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{prefix}-images-idx3-ubyte has {images} images but .* has 5 labels"):
        load(tmp_path, dataset_of(contents, folders=MNIST.folders))


def test_the_home_is_asked_for_every_file_and_its_archives_are_unpacked(monkeypatch, tmp_path):
    asked = {}

    def download(url: str, sha256: str) -> bytes:
        asked[url] = sha256
        return gzip.compress(url.encode())

    monkeypatch.setattr(mnist, "download", download)
    home = mnist.HOMES[0]
    contents = dict(MNIST.sources[0].contents(tmp_path))
    assert contents == {file.name: f"{home}/{file.name}.gz".encode() for file in MNIST.files}
    assert asked == {f"{home}/{archive}": sha256 for archive, sha256 in mnist.ARCHIVES.items()}


def test_the_permutation_is_one_bijection_for_ever():
    order = permutation()
    assert sorted(order.tolist()) == list(range(784))
    assert order[:8].tolist() == [177, 78, 648, 579, 590, 294, 82, 332]
    assert hashlib.sha256(order.numpy().astype("<i8").tobytes()).hexdigest()[:16] == "3bd3918de361a432"


def test_the_permutation_comes_from_the_named_seed(monkeypatch):
    before = permutation()
    np.random.seed(3)
    assert torch.equal(permutation(), before)
    assert permutation().tolist() == np.random.RandomState(PERMUTATION_SEED).permutation(784).tolist()
    monkeypatch.setattr(mnist, "PERMUTATION_SEED", PERMUTATION_SEED + 1)
    assert not torch.equal(permutation(), before)


@pytest.fixture
def task() -> PixelTask:
    """23 training and 7 test images of 6 pixels and 2 channels; the labels number the images."""
    images = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (30, 6, 2), np.uint8))
    return PixelTask("small", (images[:23], torch.arange(23)), (images[23:], torch.arange(7)))


def order_of(task: PixelTask, split: str, **place: int) -> list[int]:
    return torch.cat([y for _, y in task.batches(split, 5, **place)]).tolist()


def test_images_stay_bytes_until_a_batch_is_made_of_them(task):
    assert (task.train_size, task.test_size, task.steps, task.inputs) == (23, 7, 6, 2)
    for split in ("train", "test"):
        stored = task._splits[split][0]
        x, y = task.batch(split, 4, 0, 0, 0)
        assert (stored.dtype, x.dtype, y.dtype) == (torch.uint8, torch.float32, torch.int64)
        assert x.shape == (6, 4, 2)
        assert torch.equal(x, (stored[y] / 255).transpose(0, 1))


def test_bytes_0_and_255_become_0_and_1():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1)
    x, _ = PixelTask("small", (images, torch.zeros(1)), (images, torch.zeros(1))).batch("train", 1, 0, 0, 0)
    torch.testing.assert_close(x.flatten(), torch.tensor([0, 0.2, 1]))


def test_every_training_image_comes_once_an_epoch(task):
    assert [len(y) for _, y in task.batches("train", 5)] == [5, 5, 5, 5, 3]
    for epoch in range(3):
        assert sorted(order_of(task, "train", seed=1, epoch=epoch)) == list(range(23))


def test_the_training_order_depends_on_seed_and_epoch_alone(task):
    places = [(1, 2), (1, 3), (2, 3), (2, 1), (1, 2)]  # one after another, only the epoch or only the seed changes
    first, *others, again = (order_of(task, "train", seed=seed, epoch=epoch) for seed, epoch in places)
    assert len({tuple(order) for order in (range(23), first, *others)}) == 5
    assert again == first
    assert order_of(task, "train", seed=1, epoch=2, start=2) == first[10:]


def test_the_test_order_is_fixed(task):
    for seed, epoch in ((0, 0), (1, 2)):
        assert order_of(task, "test", seed=seed, epoch=epoch) == list(range(7))


def test_losses_and_errors_are_those_of_each_image(task):
    sure_of_3 = torch.zeros(2, 10)
    sure_of_3[:, 3] = 20
    y = torch.tensor([3, 4])
    assert task.errors(sure_of_3, y).tolist() == [0, 1]
    torch.testing.assert_close(task.losses(sure_of_3, y), torch.tensor([0.0, 20.0]), atol=1e-6, rtol=0)
    assert task.format_error(0.0123) == "1.23 %"


def test_real_sequential_mnist(real_mnist):
    splits = load(real_mnist)
    assert splits["train"][0].shape == (60_000, 784, 1)
    assert splits["test"][0].shape == (10_000, 784, 1)
    assert splits["train"][1][:5].tolist() == [5, 0, 4, 1, 9]
    assert splits["test"][1][:5].tolist() == [7, 2, 1, 0, 4]
    assert splits["train"][0].float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)


def test_real_permuted_mnist_is_the_sequential_one_in_another_order(real_mnist):
    sequential, permuted = (kind(real_mnist, train_size=100, test_size=50) for kind in (SequentialMNIST, PermutedMNIST))
    assert (permuted.train_size, permuted.test_size, permuted.steps, permuted.inputs) == (100, 50, 784, 1)
    kept = permuted.artifacts()["permutation.json"]
    assert kept == {"seed": PERMUTATION_SEED, "order": permutation().tolist()}
    assert sequential.artifacts() == {}
    (x, y), (permuted_x, permuted_y) = (task.batch("test", 50, 0, 0, 0) for task in (sequential, permuted))
    assert torch.equal(permuted_x, x[permutation()])
    assert torch.equal(permuted_y, y)

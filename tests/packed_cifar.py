"""CIFAR-10 as it may lie beside a checkout: a zip a batch, with labels and with images in strips of lossless WebP."""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from glstm.data import CIFAR10
from glstm.storage import write_atomically

LABELS = "labels.u8"  # a byte an image


def is_packed(folder: Path) -> bool:
    return all(_zip_of(file.name, folder).is_file() for file in CIFAR10.files)


def unpack(packed: Path, folder: Path) -> None:
    """Write the official binary batches. Several processes may do so at once: each file appears whole."""
    for file in CIFAR10.files:
        content = batch(_zip_of(file.name, packed))
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise ValueError(f"{_zip_of(file.name, packed)} does not hold the images and labels of {file.name}")
        write_atomically(folder / file.name, content)


def batch(path: Path) -> bytes:
    """A label, then the red, the green and the blue plane, for one image after the other."""
    with zipfile.ZipFile(path) as archive:
        labels = np.frombuffer(archive.read(LABELS), np.uint8)
        strips = [_strip(archive.read(name)) for name in sorted(archive.namelist()) if name.endswith(".webp")]
    planes = np.concatenate(strips).transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return np.column_stack((labels, planes)).tobytes()


def _strip(content: bytes) -> np.ndarray:
    """Images of 32 x 32 pixels, one below the other."""
    with Image.open(io.BytesIO(content), formats=["WEBP"]) as picture:
        return np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)


def _zip_of(name: str, folder: Path) -> Path:
    return (folder / name).with_suffix(".zip")

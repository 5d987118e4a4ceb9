"""What tests stand on: commands run as a user runs them, and files that others could have changed are not taken for the
real ones."""

import io
import os
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

import commands
from commands import glstm_process
from emulated import own_folder
from glstm.data import CIFAR10
from glstm.data.cifar import parse_records
from packed_cifar import batch, is_packed, unpack


def pack(path, images, labels):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("labels.u8", bytes(labels))
        for number, strip in enumerate(np.split(images, 2)):
            stream = io.BytesIO()
            Image.fromarray(strip.reshape(-1, 32, 3)).save(stream, "webp", lossless=True)
            archive.writestr(f"{number:02d}.webp", stream.getvalue())


def test_packed_images_come_out_in_order(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    pack(tmp_path / "test_batch.zip", images, range(6))
    pixels, labels = parse_records(batch(tmp_path / "test_batch.zip"), "test_batch.bin")
    assert labels.tolist() == list(range(6))
    assert (pixels.numpy() == images.reshape(6, 1024, 3)).all()


def test_packed_images_that_are_not_cifars_are_refused(tmp_path):
    for file in CIFAR10.files:
        assert not is_packed(tmp_path)
        pack((tmp_path / file.name).with_suffix(".zip"), np.zeros((2, 32, 32, 3), np.uint8), [0, 1])
    assert is_packed(tmp_path)
    with pytest.raises(ValueError, match=r"data_batch_1.zip does not hold the images and labels of data_batch_1.bin"):
        unpack(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_libraries_come_from_a_folder_that_only_its_owner_can_write(tmp_path):
    folder = own_folder(tmp_path / "build" / "emulated")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert own_folder(folder) == folder
    folder.chmod(0o770)
    with pytest.raises(PermissionError, match=r"others can write to .*emulated"):
        own_folder(folder)


def test_a_command_in_a_copied_process_is_one_in_a_fresh_one(tmp_path, monkeypatch):
    """Its exit status, what it prints and where; and what one call sets the next one does not see."""
    calls: list[tuple[list[str], dict[str, str]]] = [
        (["evaluate", "nowhere"], {}),
        (["data", "verify", "mnist"], {"GLSTM_DATA": str(tmp_path)}),
    ]
    copied = [glstm_process(*words, cwd=tmp_path, env=os.environ | more) for words, more in calls]
    assert glstm_process("evaluate", "nowhere", cwd=tmp_path).stderr == copied[0].stderr
    monkeypatch.setattr(commands, "_starts_otherwise", lambda environment: True)
    fresh = [glstm_process(*words, cwd=tmp_path, env=os.environ | more) for words, more in calls]
    assert [done.args[0] for done in (*copied, *fresh)] == [*["glstm"] * 2, *[sys.executable] * 2]
    for one, other in zip(copied, fresh, strict=True):
        assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)
        assert one.returncode == 2

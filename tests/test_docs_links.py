"""Links of the documents: files, headings and pictures that they point to are in the repository."""

import re
import subprocess

import pytest

from documents import DOCUMENTS, ROOT, anchors, name_of, text_of

LINK = re.compile(r"\]\(([^)\s]*)\)")


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return set(listed)


@pytest.mark.parametrize("path", DOCUMENTS, ids=map(name_of, DOCUMENTS))
def test_links_lead_somewhere(path, tracked):
    for link in LINK.findall(text_of(path)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        assert found.relative_to(ROOT).as_posix() in tracked, f"{link} is not in the repository"
        if anchor:
            assert anchor in anchors(found), f"{link}: there is no such heading"


def test_every_picture_is_shown_somewhere(tracked):
    shown = {
        (path.parent / link).resolve().relative_to(ROOT).as_posix()
        for path in DOCUMENTS
        for link in LINK.findall(text_of(path))
        if link.endswith(".png")
    }
    assert {name for name in tracked if re.fullmatch(r"docs/[^/]*\.png", name)} <= shown


def test_anchors_are_those_of_code_hosts(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A title, once\n## `code` & more\n## Twice\n```\n## not this\n```\n## Twice\n## A [link](there.md)\n"
    )
    assert anchors(page) == {"a-title-once", "code--more", "twice", "twice-1", "a-link"}

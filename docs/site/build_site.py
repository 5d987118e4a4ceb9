"""Builds the documentation site: `make site`, or `python docs/site/build_site.py FOLDER`.

Pages are written for a reader of the repository: they lie where a code host shows them, and link to files by their
place there. This script collects them in one folder, points their links at the collected copies, and runs the
generator, Zensical, with warnings as errors.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
# Pages that are not in docs/, by their place in the repository: where they are on the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "src/glstm/ops/README.md": "operator.md",
    "results/README.md": "results.md",
    "results/earlier/README.md": "results-earlier.md",
}
FENCED = re.compile(r"^( *)(```+).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[\d;]*m")
# What belongs to an item of a list: code hosts take two or three spaces before it, the generator wants four.
INDENTED = re.compile(r"^ {2,3}(?=\S)", re.MULTILINE)
# The text in brackets may hold a picture, which is a link of its own.
LINK = re.compile(r"(?<=\]\()([^)\s#]+)?(#[^)\s]*)?(?=\))")


def pages() -> dict[str, str]:
    """Every page: where it is in the repository, and where on the site."""
    own = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return {path: path.removeprefix("docs/") for path in sorted(own)} | ELSEWHERE


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with everything changed but its code blocks."""
    parts, end = [], 0
    for block in FENCED.finditer(text):
        parts += [change(text[end : block.start()]), block.group()]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def collect(folder: Path) -> None:
    """Every page into the folder, and every file that one of them links to."""
    known = pages()
    for source, page in known.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(outside_code((ROOT / source).read_text(), Pointed(source, page, known, folder)))
    shutil.copytree(HERE / "assets", folder / "assets")


@dataclass(frozen=True)
class Pointed:
    """A page's text for the generator, its links pointed at the collected pages. Other files that it links to are
    collected, too."""

    source: str
    page: str
    known: dict[str, str]
    folder: Path

    def __call__(self, text: str) -> str:
        return LINK.sub(self._link, INDENTED.sub("    ", text))

    def _link(self, link: re.Match) -> str:
        target, anchor = link.group(1) or "", link.group(2) or ""
        if not target or ":" in target:
            return target + anchor
        place = Path(os.path.normpath(Path(self.source).parent / target)).as_posix()
        found = {"README.md": "index.md", **self.known}.get(place) or self._file(place)
        return os.path.relpath(found, Path(self.page).parent) + anchor

    def _file(self, place: str) -> str:
        if not (ROOT / place).is_file():
            sys.exit(f"{self.source} links to {place}, which is not there")
        found = place.removeprefix("docs/") if place.startswith("docs/") else f"files/{place}"
        (self.folder / found).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / place, self.folder / found)
        return found


def generate(work: Path) -> Path:
    """The site, from the pages in the folder `work`. A warning is an error: the generator's, and those of griffe, which
    reads the docstrings."""
    shutil.copyfile(HERE / "zensical.toml", work / "zensical.toml")
    shutil.copytree(HERE / "theme", work / "theme")
    (work / "src").symlink_to(ROOT / "src")  # what the reference is made from
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode or "griffe:" in done.stdout:
        sys.exit(f"the site cannot be built:\n{COLOUR.sub('', done.stdout)}")
    (work / "site" / "404.html").unlink()  # it only works at the root of a server
    return work / "site"


def build(site: Path) -> None:
    """The whole site into this folder, which is replaced."""
    with tempfile.TemporaryDirectory() as made:
        collect(Path(made) / "pages")
        found = generate(Path(made))
        if site.exists():
            if any(site.iterdir()) and not (site / "objects.inv").exists():
                sys.exit(f"{site} is not empty and holds no site: choose another folder")
            shutil.rmtree(site)
        shutil.copytree(found, site)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    print("building the site, some seconds", flush=True)
    build(folder)
    print(f"written to {folder}; open {folder / 'index.html'}")

"""Builds the documentation site: `make site`, or `python docs/site/build.py FOLDER`.

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
from pathlib import Path

from notebook import as_page

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
# The text in brackets may hold a picture, which is a link of its own.
LINK = re.compile(r"(?<=\]\()([^)\s#]+)?(#[^)\s]*)?(?=\))")


def pages() -> dict[str, str]:
    """Every page: where it is in the repository, and where on the site."""
    own = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    notebooks = (path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.ipynb"))
    return {
        **{path: path.removeprefix("docs/") for path in sorted(own)},
        **{path: Path(path).with_suffix(".md").name for path in sorted(notebooks)},
        **ELSEWHERE,
    }


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
        path = ROOT / source
        text = as_page(path, target.with_suffix("")) if path.suffix == ".ipynb" else path.read_text()
        target.write_text(outside_code(text, lambda part: _with_links(part, source, page, known, folder)))
    shutil.copytree(HERE / "assets", folder / "assets")


def _with_links(text: str, source: str, page: str, known: dict[str, str], folder: Path) -> str:
    def pointed(link: re.Match) -> str:
        target, anchor = link.group(1) or "", link.group(2) or ""
        if not target or ":" in target or (folder / Path(page).parent / target).exists():
            return target + anchor
        place = Path(os.path.normpath(Path(source).parent / target)).as_posix()
        place = f"{place}/README.md" if (ROOT / place).is_dir() else place
        if place in known:
            found = known[place]
        else:
            found = place.removeprefix("docs/") if place.startswith("docs/") else f"files/{place}"
            (folder / found).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / place, folder / found)
        return os.path.relpath(found, Path(page).parent) + anchor

    return LINK.sub(pointed, text)


def build(site: Path) -> None:
    """The whole site into this folder, which is replaced. A warning of the generator's is an error."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        collect(work / "pages")
        shutil.copyfile(HERE / "zensical.toml", work / "zensical.toml")
        shutil.copytree(HERE / "theme", work / "theme")
        (work / "src").symlink_to(ROOT / "src")  # what the reference is made from
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"the site cannot be built:\n{done.stdout}")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(work / "site", site)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    build(folder)
    print(f"written to {folder}; open {folder / 'index.html'}")

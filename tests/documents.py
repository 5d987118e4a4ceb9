"""The documents, and what is in them: blocks of code, other text, headings."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("src/glstm/ops/README.md", "results/README.md", "results/earlier/README.md")),
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    language: str
    code: str


def blocks(path: Path, *languages: str) -> list[Block]:
    """The fenced blocks of these languages, in their order; "" is a block that names none."""
    found = [Block(language, code) for _, language, code in FENCED.findall(path.read_text())]
    return [block for block in found if block.language in languages]


def text_of(path: Path) -> str:
    """Everything but the blocks of code."""
    return FENCED.sub("", path.read_text())


def inline_code(path: Path) -> list[str]:
    """What stands between backticks, each on one line."""
    return [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text_of(path))]


def anchors(path: Path) -> set[str]:
    """Where links into the page may point, by the rule of code hosts."""
    found: dict[str, int] = {}
    for title in re.findall(r"^#+ (.*)$", text_of(path), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "").strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {
        anchor if not number else f"{anchor}-{number}" for anchor, last in found.items() for number in range(last + 1)
    }

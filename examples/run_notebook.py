"""A program: runs first-hour.ipynb again, and writes it with its outputs, and docs/first-hour.md with its pictures."""

import base64
import copy
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "first-hour.ipynb"
DOCS = ROOT / "docs"
PAGE = DOCS / "first-hour.md"
PATIENCE = 600  # seconds for a cell


def executed(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """The same with new outputs. What it writes is in the folder."""
    done = copy.deepcopy(notebook)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(done, timeout=PATIENCE, kernel_name="python3", coalesce_streams=True, resources=place).execute()
    for cell in done.cells:
        cell.metadata.pop("execution", None)  # when it began and ended
    done.metadata.language_info = {"name": "python"}  # without a version
    return done


def as_markdown(notebook: NotebookNode) -> tuple[str, dict[str, bytes]]:
    """The page, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("](../docs/", "]("))
            continue
        parts.append(f"```py\n{cell.source}\n```")  # a block that needs those before it; ```python runs alone
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"first-hour-{cell.metadata.picture}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![{cell.metadata.alt}]({name})")
            else:
                text = output.get("text") or data["text/plain"]
                parts.append(f"```text\n{text.rstrip()}\n```")
    parts.insert(1, f"*This page is [a notebook](../{NOTEBOOK.relative_to(ROOT).as_posix()}) as it ran.*")
    return "\n\n".join(parts) + "\n", pictures


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = executed(nbformat.read(NOTEBOOK, as_version=4), Path(folder))
    nbformat.write(done, NOTEBOOK)
    text, pictures = as_markdown(done)
    PAGE.write_text(text)
    for old in DOCS.glob("first-hour-*.png"):
        old.unlink()
    for name, picture in pictures.items():
        (DOCS / name).write_bytes(picture)
    print(f"{NOTEBOOK.relative_to(ROOT)} and {PAGE.relative_to(ROOT)} are as it ran now")


if __name__ == "__main__":
    main()

"""The notebook runs from top to bottom, and what is committed of it is what it gave."""

import re

import nbformat
import pytest
from nbformat import NotebookNode

from run_notebook import DOCS, NOTEBOOK, PAGE, as_markdown, executed


@pytest.fixture(scope="module")
def committed() -> NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def printed(notebook: NotebookNode) -> str:
    return "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))


def kinds(notebook: NotebookNode) -> list[list[str]]:
    """What each cell gives: text, or the formats of what is shown."""
    return [
        [output.output_type, *sorted(output.get("data", ()))]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]


def test_it_runs_from_top_to_bottom(committed, tmp_path, monkeypatch):
    """In a kernel of its own. Errors and operations vary a little between machines; what they show does not."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as in the Makefile
    found = executed(committed, tmp_path)
    assert [cell.source for cell in found.cells] == [cell.source for cell in committed.cells]
    assert kinds(found) == kinds(committed)
    text = printed(found)
    gated, plain = map(float, re.findall(r"LSTM: best in epoch \d+, test error ([\d.]+)%", text))
    assert gated < 10 < plain
    (wide, all_of_it), (narrow, _) = re.findall(r"open, ([\d,]+) operations a sequence, of an LSTM's ([\d,]+)", text)
    wide, narrow, all_of_it = (int(number.replace(",", "")) for number in (wide, narrow, all_of_it))
    assert 10 * narrow < wide < all_of_it
    assert "it is worn, the stream says worn" in text
    differences = [float(number) for number in re.findall(r"largest difference from PyTorch:? ([\d.e+-]+)", text)]
    assert max(differences) < 1e-5
    assert len(differences) == 2
    assert (tmp_path / "runs/first-hour/explore.html").is_file()


def test_what_is_committed_has_been_run_in_one_go(committed):
    counts = [cell.execution_count for cell in committed.cells if cell.cell_type == "code"]
    assert counts == [*range(1, len(counts) + 1)]
    assert not re.search(r"/(?:root|home|tmp|work|Users)/|Traceback|\x1b", printed(committed))


def test_the_page_is_the_notebook(committed):
    text, pictures = as_markdown(committed)
    again = "run 'make notebook' again"
    assert PAGE.read_text() == text, again
    assert {path.name for path in DOCS.glob("first-hour-*.png")} == set(pictures), again
    for name, picture in pictures.items():
        assert (DOCS / name).read_bytes() == picture, again
        assert len(picture) < 100_000

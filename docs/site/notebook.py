"""A notebook as a page of the site: its text, its code and what the code printed and drew."""

import base64
import json
from pathlib import Path


def as_page(notebook: Path, pictures: Path) -> str:
    """In Markdown. Pictures are written into a folder of that name, which lies beside the page."""
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"], start=1):
        text = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code" and text:
            parts.append(f"```python\n{text}\n```")
            parts += _outputs(cell["outputs"], pictures, number)
    return "\n\n".join(parts) + "\n"


def _outputs(outputs: list[dict], pictures: Path, number: int) -> list[str]:
    found, printed = [], ""
    for output in outputs:
        data = output.get("data", {})
        if "image/png" in data:
            pictures.mkdir(parents=True, exist_ok=True)
            path = pictures / f"{number}-{len(found)}.png"
            path.write_bytes(base64.b64decode("".join(data["image/png"])))
            found.append(f"![What cell {number} draws]({pictures.name}/{path.name})")
        else:
            printed += "".join(output.get("text", data.get("text/plain", "")))
    return ([f"```text\n{printed.strip()}\n```"] if printed.strip() else []) + found

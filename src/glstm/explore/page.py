"""The page: its parts from the folder `web`, and the data, as one file that needs no other."""

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import Any

WEB = Path(__file__).with_name("web")
MARK = "<!-- Written by `glstm explore` -->"
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)


def page(data: dict[str, Any]) -> str:
    """The whole page as text. It may run only the script and the style that are in it, and may load nothing."""
    script, style = joined("main"), (WEB / "style.css").read_text()
    # '<' is written as an escape: whatever names of runs and classes are, they cannot end the element.
    numbers = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    names = ", ".join(run["name"] for run in data["runs"])
    allowed = f"script-src {_digest(script)}; style-src {_digest(style)}"
    rules = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    parts = {
        "MARK": MARK, "RULES": escape(rules), "TITLE": escape(f"glstm: {names}"), "STYLE": style, "SCRIPT": script,
        "DATA": numbers,
    }  # fmt: skip
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], (WEB / "page.html").read_text())


def joined(name: str) -> str:
    """A module and all that it imports as one script: the browser would have to load them from somewhere."""
    done: dict[str, str] = {}

    def add(one: str) -> None:
        if one in done:
            return
        text = (WEB / f"{one}.js").read_text()
        done[one] = ""  # so that modules that import each other come to an end
        for other in IMPORT.findall(text):
            add(other)
        del done[one]
        done[one] = re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE)

    add(name)
    return "\n" + "\n".join(done.values())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value

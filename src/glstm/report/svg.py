"""matplotlib's figures as parts of a page: the page's style sheet decides their colours and fonts."""

import io
import re
from contextlib import AbstractContextManager
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from glstm import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT = 13.0  # in units of the figure; a page shows about one unit per pixel
THEME = {plots.INK: "var(--soft)", plots.RULE: "var(--rule)"} | {
    colour: f"var(--c{number})" for number, colour in enumerate(plots.COLOURS)
}
NOT_SHOWN = {"metadata", "style", "title"}
KEPT_IDS = {"path", "clipPath"}  # elements that others refer to by id


def style(name: str) -> AbstractContextManager[None]:
    """Figures are drawn and converted inside this block: text stays text, and ids come from the figure's name alone."""
    # Points of a curve may move by half a unit: that is not visible on a page.
    return plots.style(font__size=FONT, svg__fonttype="none", svg__hashsalt=name, path__simplify_threshold=0.5)


def inline(figure: "Figure", label: str) -> str:
    """The figure as an element of a page, with `label` for screen readers."""
    buffer = io.BytesIO()
    figure.savefig(
        buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
    )
    root = ElementTree.fromstring(buffer.getvalue())
    box = root.get("viewBox")
    content = "".join(ElementTree.tostring(part, "unicode") for child in root for part in _cleaned(child))
    head = f'class="chart" viewBox="{box}" font-size="{FONT:g}" role="img" aria-label="{escape(label, quote=True)}"'
    return f"<svg {head}>{content}</svg>"


def _cleaned(element: Element) -> list[Element]:
    """Removes what a page does not need: returns the element, or instead the elements inside it, or none."""
    tag = element.tag.split("}")[-1]
    if tag in NOT_SHOWN:
        return []
    children = [part for child in element for part in _cleaned(child)]
    attributes = {name.split("}")[-1]: value for name, value in element.attrib.items()}
    name = attributes.pop("id", None)
    if tag in KEPT_IDS and name:
        attributes["id"] = name
    if "style" in attributes:
        attributes["style"] = _themed(attributes["style"])
    if "d" in attributes:
        attributes["d"] = re.sub(r"\s*([A-Za-z])\s*", r"\1", _short(attributes["d"])).strip()
    attributes |= {name: _short(attributes[name]) for name in ("x", "y") if name in attributes}
    if attributes.get("transform", "").startswith("rotate(-0"):
        del attributes["transform"]
    if "href" in attributes:
        attributes["href"] = re.sub(r"\s", "", attributes["href"])
    attributes = {name: value for name, value in attributes.items() if value}
    if tag in ("g", "defs") and not children:
        return []
    if tag == "g" and not attributes:
        return children
    if tag == "path" and attributes.get("style") == "fill: none":
        return []
    found = Element(tag, attributes)
    found.extend(children)
    found.text = element.text if tag == "text" else None
    return [found]


def _themed(style: str) -> str:
    """Our colours become the page's; of the font only a size that is not the usual one stays."""
    parts = []
    for part in (one.strip() for one in style.split(";")):
        name, _, value = part.partition(": ")
        if name in ("font", "font-size"):
            size = re.search(r"([\d.]+)px", value)
            if size and float(size[1]) != FONT:
                parts.append(f"font-size: {size[1]}px")
        elif part and name != "font-family":
            parts.append(re.sub(r"#[0-9a-f]{6}", lambda found: THEME.get(found[0], found[0]), part))
    return "; ".join(parts)


def _short(numbers: str) -> str:
    """A tenth of a unit is fine enough."""
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), numbers)

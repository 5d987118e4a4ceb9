"""The report as one HTML page that needs no other file."""

from html import escape
from pathlib import Path

from glstm import plots
from glstm.report import figures
from glstm.report.claims import Claim, claims
from glstm.report.frontier import CHOSEN, EVERY, operating_points
from glstm.report.results import Result, Rows
from glstm.report.tables import HOW, not_yet, origin
from glstm.report.tables import figures as figures_table

STYLE = Path(__file__).with_name("style.css")
# The colours of all pictures; in dark mode the style sheet has lighter ones.
COLOURS = "".join(f"--c{number}: {colour};" for number, colour in enumerate(plots.COLOURS))


def page(results: list[Result]) -> str:
    links = "".join(f'<li><a href="#{escape(result.name)}">{escape(result.title)}</a></li>' for result in results)
    small = any(result.small for result in results)
    warning = "<p><strong>On a small scale: nothing here is to be quoted.</strong></p>" if small else ""
    return whole(
        "glstm: results",
        "Gaussian-gated LSTMs, re-run",
        f'<p class="soft">{escape(f"{origin(results)}. {HOW}")}</p>{warning}<nav><ul>{links}</ul></nav>'
        + _claims(claims(results))
        + "".join(_section(result) for result in results),
    )


def whole(title: str, heading: str, body: str) -> str:
    """A page with its style; the body is HTML already."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>:root {{{COLOURS}}}\n{STYLE.read_text()}</style></head><body><h1>{escape(heading)}</h1>"
        f"{body}</body></html>\n"
    )


def _claims(found: list[Claim]) -> str:
    if not found:
        return ""
    parts = "".join(
        f'<article><h3>{escape(claim.says)}</h3><p class="verdict">{escape(claim.verdict)}</p>'
        f'<div class="scroll">{table(claim.evidence)}</div></article>'
        for claim in found
    )
    return f'<section id="claims"><h2>The paper\'s claims</h2>{parts}</section>'


def _section(result: Result) -> str:
    shown = "".join(
        f"<figure>{html}<figcaption>{escape(text)}</figcaption></figure>" for text, html in figures.of(result)
    )
    cheapest = ""
    if result.is_frontier:
        cheapest = f'<p>{CHOSEN}</p><div class="scroll">{table(operating_points(result))}</div><p>{EVERY}</p>'
    missing = f'<p class="soft">{escape(not_yet(result))}</p>' if result.missing else ""
    return (
        f'<section id="{escape(result.name)}"><h2>{escape(result.title)}</h2><p>{escape(result.question)}</p>'
        f'{cheapest}<div class="scroll">{table(figures_table(result))}</div>{missing}'
        f'<div class="all">{shown}</div></section>'
    )


def table(rows: Rows, coloured: bool = False) -> str:
    """`coloured`: each row begins with a mark in the colour that the figures draw it in."""
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(_row(row, number if coloured else None) for number, row in enumerate(body))
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def _row(row: list[str], colour: int | None) -> str:
    mark = "" if colour is None else f'<span class="colour c{colour % len(plots.COLOURS)}"></span>'
    first, *others = (escape(cell) for cell in row)
    return f"<tr><td>{mark}{first}</td>" + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>"

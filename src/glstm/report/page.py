"""The report as one HTML page that needs no other file."""

import re
from html import escape
from pathlib import Path

from glstm import plots
from glstm.report import figures
from glstm.report.claim import Claim
from glstm.report.claims import claims
from glstm.report.frontier_figure import frontier_chart, frontier_figure
from glstm.report.published import OTHERS, thrifty_rows
from glstm.report.results import TRACKS, Result, Rows
from glstm.report.table2 import TITLE as TABLE_2
from glstm.report.table2 import table2_rows
from glstm.report.tables import figures as figures_table
from glstm.report.thrift import PICTURE
from glstm.report.words import (
    ASKED,
    HOW,
    SMALL_SCALE,
    TITLE,
    answer,
    caveats,
    five_rows,
    not_finished,
    not_yet,
    notes,
    origin,
    searches,
    tries,
    verdict,
)

STYLE = Path(__file__).with_name("style.css")
AGAINST = "Error against operations"
LONG_CELL = 33  # characters: an interval has fewer
# The colours of all pictures; in dark mode the style sheet has lighter ones.
COLOURS = "".join(f"--c{number}: {colour};" for number, colour in enumerate(plots.COLOURS))


def page(results: list[Result]) -> str:
    links = "".join(f'<li><a href="#{escape(result.name)}">{escape(result.title)}</a></li>' for result in results)
    warning = f"<p><strong>{SMALL_SCALE}</strong></p>" if any(result.small for result in results) else ""
    versions = "".join(f"<li>{escape(line)}</li>" for line in origin(results))
    body = (
        warning
        + _first_screen(results)
        + _claims(claims(results), {result.name: result for result in results})
        + f'<section id="experiments"><h2>Every experiment</h2><p>{escape(HOW)}</p><nav><ul>{links}</ul></nav>'
        + "</section>"
        + "".join(_section(result) for result in results)
        + f'<section id="versions"><h2>Versions, commits and hardware</h2><ul class="soft">{versions}</ul></section>'
    )
    return whole("glstm: results", TITLE, re.sub(r"(?<=[0-9]) (?=%|M\b)", "\u00a0", body))  # kept on one line


def whole(title: str, heading: str, body: str) -> str:
    """A page with its style; the body is HTML already."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>:root {{{COLOURS}}}\n{STYLE.read_text()}</style></head><body><h1>{escape(heading)}</h1>"
        f"{body}</body></html>\n"
    )


def _first_screen(results: list[Result]) -> str:
    said = "".join(f"<li>{_emphasised(sentence)}</li>" for sentence in answer(results))
    by_track = [
        f"<h3>{escape(TRACKS[track])}</h3>{table(five_rows(results, track), stacked=True)}"
        + (f'<p class="soft">{escape(" ".join(texts))}</p>' if (texts := caveats(results, track)) else "")
        for track in ("paper", "best")
    ]
    picture = frontier_figure(results)
    against = f"<h3>{AGAINST}</h3>{picture}{_others(results)}" if picture else ""
    return (
        f'<p><strong>{escape(verdict(results))}</strong></p><p>{escape(ASKED)}</p><ol class="answer">{said}</ol>'
        f"{by_track[0]}{against}{by_track[1]}<p>{escape(not_finished(results))}</p>"
    )


def _others(results: list[Result]) -> str:
    """What others published, folded away."""
    tables = {OTHERS: thrifty_rows(), TABLE_2: table2_rows({result.name: result for result in results})}
    return "".join(
        f"<details><summary>{escape(name)}</summary>{table(rows, stacked=True)}</details>"
        for name, rows in tables.items()
    )


def _emphasised(sentence: str) -> str:
    """The question in it stands out."""
    question, _, text = sentence.partition("? ")
    return f"<strong>{escape(question)}?</strong> {escape(text)}"


def _claims(found: list[Claim], results: dict[str, Result]) -> str:
    parts = "".join(_claim(claim, results, number) for number, claim in enumerate(found))
    return f'<section id="claims"><h2>The claims</h2>{parts}</section>'


def _claim(claim: Claim, results: dict[str, Result], number: int) -> str:
    whose = "The paper" if claim.whose == "paper" else "Ours"
    badge = f'<span class="badge {claim.badge.replace(" ", "-")}">{claim.badge}</span>'
    evidence = "".join(f"<h4>{escape(name)}</h4>{table(rows, stacked=True)}" for name, rows in claim.evidence)
    shown = _shown(claim, results, number)
    details = f"<details><summary>The figures</summary>{evidence}</details>" if evidence else ""
    return (
        f'<article class="claim"><div><p class="soft">{whose}: {badge}</p><h3>{escape(claim.says)}</h3>'
        f'<p class="verdict">{escape(claim.sentence)}</p></div>{shown}{details}</article>'
    )


def _shown(claim: Claim, results: dict[str, Result], number: int) -> str:
    """The claim's figure, if there is one already."""
    if claim.shows == PICTURE:
        drawn = frontier_chart(results) is not None
        return '<p><a href="#frontier-picture">The picture of error against operations</a></p>' if drawn else ""
    if claim.shows is None:
        return ""
    result, wanted = results[claim.shows[0]], claim.shows[1]
    found = [key for key in figures.keys(result) if key == wanted or key.startswith(f"{wanted} ")]
    if not found:
        return ""
    caption, html = figures.one(result, found[0], f"claim {number}")
    return _figure(f"{result.title}. {caption}", html)


def _figure(caption: str, html: str) -> str:
    return f"<figure>{html}<figcaption>{escape(caption)}</figcaption></figure>"


def _section(result: Result) -> str:
    shown = "".join(_figure(*found) for found in figures.of(result))
    return (
        f'<section id="{escape(result.name)}"><h2>{escape(result.title)}</h2><p>{escape(result.question)}</p>'
        f'{"".join(_track(result, track) for track in result.tracks())}<div class="all">{shown}</div></section>'
    )


def _track(result: Result, track: str) -> str:
    """The networks of one track, and what was tried to find their recipes."""
    rows = figures_table(result, track)
    found = "".join(
        f"<h4>{escape(name)}</h4>{table(tries(result, search), stacked=True)}"
        for name, search in searches(result, track)
    )
    said = [*notes(result, track), not_yet(result, track)]
    return (
        f"<h3>{escape(TRACKS[track])}</h3>"
        + (table(rows, stacked=True) if rows else "")
        + "".join(f'<p class="soft">{escape(text)}</p>' for text in said if text)
        + (f"<details><summary>What was tried, and what validation chose</summary>{found}</details>" if found else "")
    )


def table(rows: Rows, coloured: bool = False, stacked: bool = False) -> str:
    """`coloured`: each row begins with a mark in the colour that the figures draw it in. `stacked`: on a narrow page
    each row becomes a block, a line for each cell."""
    head, *body = rows
    kinds = [_kind_of(column) for column in zip(*body, strict=False)] or [""] * len(head)
    cells = "".join(f"<th{kind}>{escape(cell)}</th>" for kind, cell in zip(kinds, head))
    lines = "".join(
        _row(row, number if coloured else None, head if stacked else None, kinds) for number, row in enumerate(body)
    )
    content = f"<thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div class="scroll"><table class="stacked">{content}</div>' if stacked else f"<table>{content}"


def _row(row: list[str], colour: int | None, head: list[str] | None, kinds: list[str]) -> str:
    mark = "" if colour is None else f'<span class="colour c{colour % len(plots.COLOURS)}"></span>'
    first, *others = (escape(cell) for cell in row)
    names = [""] * len(others) if head is None else [f' data-name="{escape(name, quote=True)}"' for name in head[1:]]
    cells = "".join(f"<td{name}{kind}>{cell}</td>" for name, kind, cell in zip(names, kinds[1:], others))
    return f"<tr><td>{mark}{first}</td>{cells}</tr>"


def _kind_of(column: tuple[str, ...]) -> str:
    """A column with a long cell is of texts, which are wrapped; figures stay in one line."""
    return ' class="text"' if max(map(len, column)) > LONG_CELL else ""

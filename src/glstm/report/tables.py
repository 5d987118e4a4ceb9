"""Tables of results, and results/README.md: the paper's figure beside ours, mean and standard deviation over seeds."""

import re
from statistics import mean

from glstm.report.claim import Claim
from glstm.report.claims import claims
from glstm.report.published import OTHERS, thrifty_rows
from glstm.report.results import EARLY, LAST, TRACKS, Arm, Result, Rows, millions
from glstm.report.table2 import TITLE as TABLE_2
from glstm.report.table2 import table2_rows
from glstm.report.words import (
    ASKED,
    HOW,
    SMALL_SCALE,
    TITLE,
    answer,
    caveats,
    chosen,
    five_rows,
    not_finished,
    not_yet,
    notes,
    origin,
    verdict,
)

GAMMA = f"Gamma, first {EARLY} steps"
PRUNED = ("units that ever open", "weights without the others", "error without them")


def figures(result: Result, track: str) -> Rows:
    """A head, and a row for each arm of a track that is finished; none at all if no arm is."""
    head = [
        "", "paper", "ours", "seeds", "minus its LSTM, 95 % interval", "learns", f"last {LAST} epochs", "epochs",
        "mean k", "open", "operations", GAMMA, *PRUNED,
    ]  # fmt: skip
    twins = {gated.key: plain for gated, plain in result.twins(track)}
    rows = [_row(result, arm, twins.get(arm.key)) for arm in result.arms if arm.track == track]
    return drop_empty([head, *rows]) if rows else []


def _row(result: Result, arm: Arm, twin: Arm | None) -> list[str]:
    paper = "" if arm.paper is None or arm.track == "best" else result.form(arm.paper)  # it is of another recipe
    seeds, gone = str(len(arm.runs)), len(arm.runs) - len(arm.finished)
    seeds += f", {gone} diverged" if gone else ""
    interval = "" if twin is None else result.interval(arm.minus(twin))
    last = "" if arm.last_epochs is None else result.form(arm.last_epochs)
    figures = [paper, result.spread(arm.errors), seeds, interval, arm.learnt_count, last, str(arm.epochs)]
    return [arm.name, *figures, *openness(arm), early_gradient(arm), *pruned(result, arm)]


def openness(arm: Arm) -> list[str]:
    """How open units are; with those at k <= v_T closed, how many are open; and the operations of a sequence."""
    if not arm.finished:
        return ["", "", ""]
    opened = [run.curve["mean_k"][arm.epochs - 1] for run in arm.finished]
    mean_k = "" if arm.cell == "lstm" or None in opened else f"{mean(opened):.3f}"
    measured_then = arm.at_epoch is None or arm.at_epoch == arm.runs[0].recipe["epochs"]  # they are of the last epoch
    operations = millions(mean(arm.operations)) if arm.operations and measured_then else ""
    if arm.at_threshold is None:
        return [mean_k, "", operations]
    rows = [run.at_threshold(arm.at_threshold) for run in arm.finished]
    return [mean_k, f"{100 * mean(row['open_share'] for row in rows):.1f} %", operations]


def early_gradient(arm: Arm) -> str:
    """The gradient that reaches the first steps, if it was measured: its range over seeds."""
    if not arm.has("gradient flow"):
        return ""
    found = [run.early_gradient for run in arm.finished]
    return f"{min(found):.1e} to {max(found):.1e}"


def pruned(result: Result, arm: Arm) -> list[str]:
    """What is left without the units that never open, if it was measured."""
    if not arm.has("pruned"):
        return [""] * len(PRUNED)
    found = [run.summary["probes"]["pruned"] for run in arm.finished]
    of = {name: f"{mean(one[name] for one in found):,.0f}" for name in found[0] if name != "error"}
    left = [f"{of[f'{name}_left']} of {of[name]}" for name in ("units", "weights")]
    return [*left, result.spread([one["error"] for one in found])]


def drop_empty(rows: Rows) -> Rows:
    """Without empty columns."""
    used = [column for column in range(len(rows[0])) if any(row[column] for row in rows[1:])]
    return [[row[column] for column in used] for row in rows]


def plain(text: str) -> str:
    """Text from a file as text in Markdown: no HTML, no link, no picture, no line or cell of its own."""
    kept = re.sub(r"<(?=[a-z/!?])|&(?=[#\w]+;)|[`|\[\]\\]", lambda found: f"&#{ord(found[0])};", text, flags=re.I)
    return " ".join(kept.split())


def markdown(rows: Rows) -> str:
    lines = [f"| {' | '.join(map(plain, row))} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def document(results: list[Result]) -> str:
    """results/README.md."""
    small = any(result.small for result in results)
    parts = [
        "# Results",
        "Written by `glstm report` from the JSON files beside this one, which `glstm reproduce` made. "
        "[report.html](report.html) has the figures.",
        *([f"**{SMALL_SCALE}**"] if small else []),
        f"## {TITLE}",
        f"**{verdict(results)}**",
        ASKED,
        *(f"- {sentence}" for sentence in answer(results)),
        *([text] if (text := not_finished(results)) else []),
    ]
    for track in ("paper", "best"):
        parts += [f"**{TRACKS[track]}**", markdown(five_rows(results, track))]
        parts += caveats(results, track)
    parts += ["## The claims", *(f"- {_said(claim)}" for claim in claims(results)), "## Every experiment", HOW]
    for result in results:
        parts += [f"### {plain(result.title)}", plain(result.question)]
        for track in result.tracks():
            parts += [f"**{TRACKS[track]}**"]
            parts += [markdown(rows)] if (rows := figures(result, track)) else []
            parts += [f"Chosen by validation: {plain(' '.join(lines))}"] if (lines := chosen(result, track)) else []
            parts += [plain(" ".join(lines))] if (lines := notes(result, track)) else []
            parts += [plain(text)] if (text := not_yet(result, track)) else []
    parts += [f"## {OTHERS}", markdown(thrifty_rows())]
    parts += [f"## {TABLE_2}", markdown(table2_rows({result.name: result for result in results}))]
    parts += ["## Versions, commits and hardware", *(f"- {plain(line)}" for line in origin(results))]
    return "\n\n".join(parts) + "\n"


def _said(claim: Claim) -> str:
    return f"**{claim.badge}** ({_whose(claim)}): {claim.says} {claim.sentence}"


def _whose(claim: Claim) -> str:
    return "the paper's" if claim.whose == "paper" else "ours"

"""Tables of results: the paper's figure beside ours, mean and standard deviation over seeds."""

import re
from collections import Counter
from statistics import mean, stdev

from glstm.report.claims import claims
from glstm.report.frontier import CHOSEN, EVERY, operating_points
from glstm.report.results import EARLY, LAST, Arm, Result, Rows, Run

HOW = (
    "Errors are those of the last epoch on the test set, mean ± standard deviation over seeds; never the best epoch. "
    f"Beside them is the mean of the last {LAST} epochs. 'mean k' is how open units are, over all steps; 'open' the "
    "share of updates that are left where units at k <= v_T are closed, 'operations' what a sequence then takes, "
    "counted exactly. 'tuned' is a second recipe, the same for both networks; 'chrono T' draws biases for memories of "
    "up to T steps; with 'shift' training images move by so many pixels; lambda rises over 'budget_epochs'."
)

UNKNOWN = "unknown"
GAMMA = f"Gamma, first {EARLY} steps"


def figures(result: Result) -> Rows:
    """A head, and a row for each arm."""
    head = ["", "paper", "ours", "seeds", f"last {LAST} epochs", "epochs", "mean k", "open", "operations", GAMMA]
    rows = [head]
    for arm in result.arms:
        paper = "" if arm.paper is None else result.form(arm.paper)
        ours = result.form(mean(arm.errors))
        if len(arm.runs) > 1:
            ours += f" ± {result.form(stdev(arm.errors))}"
        last = "" if arm.last_epochs is None else result.form(arm.last_epochs)
        counts = [str(len(arm.runs)), last, str(arm.epochs)]
        rows.append([arm.name, paper, ours, *counts, *openness(arm), early_gradient(arm)])
    return drop_empty(rows)


def openness(arm: Arm) -> list[str]:
    """How open units are; and, with those at k <= v_T closed, how many are open and the operations of a sequence."""
    mean_k = mean(run.curve["mean_k"][arm.epochs - 1] for run in arm.runs)
    if arm.at_threshold is None:
        return [f"{mean_k:.3f}", "", ""]
    rows = [run.at_threshold(arm.at_threshold) for run in arm.runs]
    operations = mean(row["cached_ops"] for row in rows) / 1e6
    return [f"{mean_k:.3f}", f"{100 * mean(row['open_share'] for row in rows):.1f} %", f"{operations:.3f} M"]


def early_gradient(arm: Arm) -> str:
    """The gradient that reaches the first steps, if it was measured: its range over seeds."""
    if any("gradient flow" not in run.summary["probes"] for run in arm.runs):
        return ""
    found = [run.early_gradient for run in arm.runs]
    return f"{min(found):.1e} to {max(found):.1e}"


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
        f"Written by `glstm report` from the JSON files beside this one, which `glstm reproduce` made. {HOW}",
        *(["**On a small scale: nothing here is to be quoted.**"] if small else []),
        f"{plain(origin(results))}.",
    ]
    if found := claims(results):
        parts.append("## The paper's claims")
        for number, claim in enumerate(found, 1):
            parts += [f"### {number}. {claim.says}", f"**{plain(claim.verdict)}**", markdown(claim.evidence)]
    for result in results:
        parts += [f"## {plain(result.title)}", plain(result.question)]
        if result.is_frontier:
            parts += [
                CHOSEN,
                markdown(operating_points(result)),
                EVERY,
            ]
        parts.append(markdown(figures(result)))
        if result.missing:
            parts.append(plain(not_yet(result)))
    return "\n\n".join(parts) + "\n"


def not_yet(result: Result) -> str:
    return f"Not trained yet: {'; '.join(result.missing)}."


def networks(results: list[Result]) -> list[Run]:
    """Each network once, even if several experiments show it."""
    found = {recipe: run for result in results for arm in result.arms for recipe, run in zip(arm.recipes, arm.runs)}
    return list(found.values())


def origin(results: list[Result]) -> str:
    """The machines, the time and the code versions of training; those that trained the most come first."""
    parts = [part for run in networks(results) for part in run.summary["trained"]]
    devices = Counter(part["machine"].get("device", UNKNOWN) for part in parts).most_common()
    commits = Counter(part["machine"].get("commit", UNKNOWN)[:12] for part in parts).most_common()
    took = []
    for device, _ in devices:
        own = [part for part in parts if part["machine"].get("device", UNKNOWN) == device]
        software = ", ".join(f"{name} {version}" for name, version in own[0]["machine"].get("software", {}).items())
        took.append(f"{sum(part['seconds'] for part in own) / 60:.1f} minutes on {device} ({software})")
    code = ", ".join(commit for commit, _ in commits)
    return f"{len(networks(results))} networks; {'; '.join(took)}; by the code of {code}"

"""What is the same in the document and on the page: the question, the answer, and how it was done, in words."""

from collections import Counter
from math import inf
from statistics import median
from typing import Any

from glstm.report.claim import FAILS, HOLDS, IN_PART, OPEN
from glstm.report.claims import claims
from glstm.report.comparisons import (
    PAPER,
    TASKS,
    Pair,
    Results,
    ends,
    ends_higher,
    ends_lower,
    half,
    learns_sooner,
    level,
    of_track,
    on_tasks,
    pairs,
)
from glstm.report.results import LAST, Missing, Result, Rows, Run, Search, Try, listed

TITLE = "Gaussian-gated LSTMs: does the paper's result hold?"
ASKED = (
    "Each unit of a g-LSTM works only around a moment that it learns. The paper (Thornton, Anumula and Liu, 2019) says "
    "that such a network learns long sequences sooner than an LSTM, ends lower, and can leave out most of the work. Is "
    "that so, if each network is tuned for itself?"
)
HOW = (
    "Whatever was chosen was chosen by the error on the last 5,000 training images, which the networks that decide are "
    f"not trained with (seed 100, mean of the last {LAST} epochs); these networks are never tested. The chosen recipe "
    "is trained on all training images from other seeds, and tested; the last epoch is quoted, mean ± standard "
    "deviation over seeds. An experiment with three seeds may show three of another one's ten. 'By the paper's "
    "recipe': values that the paper leaves open are chosen for each network by itself, with four tries each. 'Each "
    "network at its best': one grid for both networks of a task, with images that move by a pixel offered to both. "
    "Some searches train for fewer epochs than what is tested, or on shorter sequences: each says so. "
    "docs/experiments.md has the grids, and says which were moved after they had been used. A difference has Welch's "
    "95 % interval. Operations are counted exactly, for every network in the same way; the paper's 7.6 M is about "
    "0.92 M in this count."
)
SMALL_SCALE = "On a small scale: nothing here is to be quoted."
NOT_YET = "not repeated yet"
IN_TEXT = {"paper": "by the paper's recipe", "best": "with each network at its best"}


# What is said of so many claims: one, and several.
VERBS = {
    HOLDS: ("holds", "hold"),
    IN_PART: ("holds in part", "hold in part"),
    FAILS: ("does not hold", "do not hold"),
    OPEN: ("is not judged yet", "are not judged yet"),
}


def verdict(results: list[Result]) -> str:
    """The answer to the title, and how it follows from the paper's claims."""
    found = Counter(claim.badge for claim in claims(results) if claim.whose == "paper")
    parts = [f"{found[badge]} {verbs[found[badge] > 1]}" for badge, verbs in VERBS.items() if found[badge]]
    alone = {HOLDS: "Yes", FAILS: "No", OPEN: "Not known yet"}
    several = "Not fully known yet" if found[OPEN] else "In part"
    short = alone.get(next(iter(found)), several) if len(found) == 1 else several
    return f"{short}. Of the paper's {found.total()} claims, {listed(parts)}."


def answer(results: list[Result]) -> list[str]:
    """Three sentences: who learns sooner, who ends lower, and what it costs."""
    found: Results = {result.name: result for result in results}
    compared = {track: [*pairs(found, track, [*TASKS])] for track in ("paper", "best")}
    cheaper = _cheaper(results)
    if not any(compared.values()):
        return [
            f"Sooner and lower? None of the {len(TASKS)} tasks is repeated yet.",
            cheaper,
        ]
    counts = [len(own) for own in compared.values() if own]
    if max(counts) == 1:
        return [*_of_one_task(compared), cheaper]
    sooner, lower = (
        [f"{on_tasks(rule, own)} {IN_TEXT[track]}" for track, own in compared.items()]
        for rule in (learns_sooner, ends_lower)
    )
    lacking = [
        f"{task} {IN_TEXT[track]}"
        for track, own in compared.items()
        for name, task in TASKS.items()
        if name not in {pair[0].name for pair in own}
    ]
    so_far = f"; not repeated yet: {', '.join(lacking)}" if lacking else ""
    return [
        f"Sooner? By the median epoch, the g-LSTM learns sooner than the LSTM {' and '.join(sooner)}{so_far}.",
        f"Lower? Its error is lower by more than chance {' and '.join(lower)}{_higher(compared)}.",
        cheaper,
    ]


def _higher(compared: dict[str, list[Pair]]) -> str:
    """Where the g-LSTM's error is higher by more than chance."""
    found = [
        f"{TASKS[pair[0].name]} {IN_TEXT[track]}"
        for track, own in compared.items()
        for pair in own
        if ends_higher(pair)
    ]
    return f"; it is higher on {', '.join(found)}" if found else ""


def _cheaper(results: list[Result]) -> str:
    """What the paper's charge costs, and what ours does."""
    *_, budget, _, thrift = claims(results)
    parts = [text.removesuffix(".") for text in (budget.in_short, thrift.in_short) if text]
    return f"Cheaper? {'. '.join(parts)}." if parts else f"Cheaper? {thrift.sentence}"


def _of_one_task(compared: dict[str, list[Pair]]) -> list[str]:
    """Two sentences with figures, as there is only one task to speak of."""
    known = [(IN_TEXT[track], own[0]) for track, own in compared.items() if own]
    result, gated, _ = known[0][1]
    times = [f"{half(gated)} against {half(plain)} {words}" for words, (_, gated, plain) in known]
    ended = [
        f"{own.spread(gated.errors)} against {own.spread(plain.errors)} {words}" for words, (own, gated, plain) in known
    ]
    sooner, lower = (_yes([rule(pair) for _, pair in known]) for rule in (learns_sooner, ends_lower))
    return [
        f"Sooner? {sooner} on {TASKS[result.name]}, the only one of {len(TASKS)} tasks that is repeated so far: half "
        f"of the seeds are under {level(gated)} by epoch {', and by epoch '.join(times)}.",
        f"Lower? {lower} there: the g-LSTM is at {', and at '.join(ended)} ({len(gated.runs)} seeds; 'yes': the "
        "95 % interval of the difference is below 0).",
    ]


def _yes(found: list[bool]) -> str:
    return "Yes" if all(found) else "In part" if any(found) else "No"


def not_finished(results: list[Result]) -> str:
    """Which networks are still to be trained, of which experiment; names may have commas in them."""
    return " ".join(
        f"Not finished yet in '{result.title}': {'; '.join(one.name for one in result.missing)}."
        for result in results
        if result.missing
    )


def five_rows(results: list[Result], track: str) -> Rows:
    """The five tasks of the paper on one track."""
    found: Results = {result.name: result for result in results}
    compared = [*pairs(found, track, [*TASKS])]
    head, *rows = ends(compared)
    known = {result.name: row for (result, _, _), row in zip(compared, rows)}
    table = [head, *(known.get(name) or _row_so_far(found.get(name), name, track) for name in TASKS)]
    return of_track(table, track)


def not_all_learn(results: list[Result], track: str) -> str:
    """Which of the five tasks some seeds do not learn: their errors are of networks that have not settled."""
    found: Results = {result.name: result for result in results}
    parts = []
    for result, *both in pairs(found, track, [*TASKS]):
        for whose, arm in zip(("g-LSTM", "LSTM"), both, strict=True):
            learnt = sum(epoch < inf for epoch in arm.learnt)
            if learnt < len(arm.finished):
                share = (
                    f"{learnt} of the {whose}'s {len(arm.finished)} seeds reached {level(arm)} in {arm.epochs} epochs"
                )
                parts.append(
                    f"on {TASKS[result.name]} only {share} (median at the end: {result.form(median(arm.errors))})"
                )
    if not parts:
        return ""
    settled = "Networks that have not settled do not say where they would end."
    return f"Not every seed learns its task: {'; '.join(parts)}. {settled}"


def caveats(results: list[Result], track: str) -> list[str]:
    """What the table of five tasks does not show."""
    said = (unequal_epochs(results, track), not_all_learn(results, track), at_an_edge(results, track))
    return [text for text in said if text]


def unequal_epochs(results: list[Result], track: str) -> str:
    """On which of the five tasks validation chose another number of epochs for one network than for the other."""
    found: Results = {result.name: result for result in results}
    parts = [
        f"on {TASKS[result.name]} {gated.epochs} epochs for the g-LSTM and {plain.epochs} for the LSTM"
        for result, gated, plain in pairs(found, track, [*TASKS])
        if gated.epochs != plain.epochs
    ]
    return f"Training lengths differ: validation chose {'; '.join(parts)}." if parts else ""


def _row_so_far(result: Result | None, name: str, track: str) -> list[str]:
    """Of a task whose two networks are not both finished."""
    end = "-best" if track == "best" else ""
    cells = {f"{cell}{end}": NOT_YET for cell in ("glstm", "lstm")}
    for arm in (*result.arms, *result.untested) if result else ():
        if result and arm.key in cells and arm.runs:
            errors = [run.curve["test_error"][-1] for run in arm.runs if not run.diverged]
            of = f" ({len(arm.runs)} of {arm.seeds} seeds)" if isinstance(arm, Missing) else ""
            cells[arm.key] = result.spread(errors) + of
    return [TASKS[name], *PAPER[name], *cells.values(), "", ""]


def said(change: dict[str, Any]) -> str:
    """A change of a recipe in words."""
    return ", ".join(_said(name, value) for name, value in change.items())


def _said(name: str, value: Any) -> str:
    match name, value:
        case "clip", 0 | 0.0:
            return "no clipping"
        case "clip", _:
            return f"gradient norm clipped at {value:g}"
        case "init", _:
            return f"{value} start"
        case "units", _:
            return f"{value} units"
        case "gate", dict():
            return ", ".join(f"{one} {_number_or_range(its)}" for one, its in value.items())
        case "data", {"shift": shift}:
            return f"images that move by {shift} pixel"
        case "schedule", _:
            return f"{value} rate"
        case "epochs", _:
            return f"{value} epochs"
        case _:
            words = {"lr": "rate", "gate_lr": "gate rate", "budget": "lambda", "forget_bias": "forget bias"}
            return (
                f"{words.get(name, name.replace('_', ' '))} {value:g}"
                if isinstance(value, int | float)
                else (f"{name} {value}")
            )


def _number_or_range(value: Any) -> str:
    """What a gate's value is given as: a name, a number, a range, or one for each group of units."""
    match value:
        case [low, high]:
            return f"{low:g} to {high:g}"
        case [*several, last]:
            first = [f"{one:g}" for one in several[:3]]
            return f"{', '.join(first)}{' ...' if len(several) > 3 else ','} {last:g}"
    return value if isinstance(value, str) else f"{value:g}"


def tries(result: Result, search: Search) -> Rows:
    rows: Rows = [["tried", "validation error, one seed", "operations", ""]]
    for number, one in enumerate(search.tries):
        error = "diverged" if one.diverged else "not trained yet" if one.validation is None else None
        error = error or result.form(one.validation or 0.0)
        count = "" if one.operations is None else f"{one.operations / 1e6:.3g} M"
        rows.append([said(one.change), error, count, "chosen" if number == search.chosen else ""])
    return rows


def searches(result: Result, track: str) -> list[tuple[str, Search]]:
    """The arms of a track that were searched for, each with its search; equal searches once."""
    found: dict[str, tuple[str, Search]] = {}
    for arm in (*result.arms, *result.untested):
        if arm.track == track and arm.search is not None:
            key = repr(arm.search)
            name = f"{found[key][0]}; {arm.name}" if key in found else arm.name
            found[key] = (name, arm.search)
    return list(found.values())


def chosen(result: Result, track: str) -> list[str]:
    """For each search, one line."""
    lines = []
    for name, search in searches(result, track):
        trained = sum(one.validation is not None or one.diverged for one in search.tries)
        if search.chosen is None:
            lines.append(f"{name}: {trained} of {len(search.tries)} tries are trained.")
            continue
        one = search.tries[search.chosen]
        error = "diverged" if one.validation is None else result.form(one.validation)
        lines.append(
            f"{name}: {said(one.change)} (validation error {error}{_lengths(search)}, of {len(search.tries)} tries)."
        )
    return lines


def _lengths(search: Search) -> str:
    """How long its networks trained, and on what: not always as long as what is tested."""
    epochs = f" after {search.epochs} epochs" if search.epochs else ""
    return epochs + (f" of {search.steps} steps" if epochs and search.steps else "")


EDGES = {"lr": "rate", "epochs": "number of epochs", "weight_drop": "share of weights left out"}


def edges(search: Search | None) -> list[str]:
    """Which of the values chosen are the largest that were tried."""
    one = _chosen(search)
    found = []
    for name, words in EDGES.items():
        values = {tried.change[name] for tried in _tries(search) if name in tried.change}
        if one is not None and len(values) > 1 and one.change.get(name) == max(values):
            found.append(words)
    return found


def at_an_edge(results: list[Result], track: str) -> str:
    """Of the five tasks, where a larger value than any that was tried may be better."""
    found: Results = {result.name: result for result in results}
    places: dict[str, list[str]] = {}
    for result, gated, plain in pairs(found, track, [*TASKS]):
        ours, theirs = edges(gated.search), edges(plain.search)
        for words in dict.fromkeys(ours + theirs):
            whose = (
                "both networks" if words in ours and words in theirs else "the g-LSTM" if words in ours else "the LSTM"
            )
            places.setdefault(f"{words} of {whose}", []).append(TASKS[result.name])
    parts = [f"the {what} on {', '.join(tasks)}" for what, tasks in places.items()]
    why = "The largest value that was tried was chosen, so a larger one may be better"
    return f"{why}: {'; '.join(parts)}." if parts else ""


def notes(result: Result, track: str) -> list[str]:
    """What speaks against taking a search's choice for the best there is."""
    found = []
    own = {arm.key: arm for arm in (*result.arms, *result.untested) if arm.search is not None}
    for arm in (arm for arm in own.values() if arm.track == track):
        one = _chosen(arm.search)
        found += [
            f"{arm.name}: the {words} chosen is the largest of the grid, so a larger one may be better."
            for words in edges(arm.search)
        ]
        other = own.get(arm.key.removesuffix("-best")) if track == "best" else None
        before = None if other is None or other is arm else _chosen(other.search)
        as_long = arm.search and other and other.search and arm.search.epochs == other.search.epochs
        if one and before and as_long and (one.validation or 0.0) > (before.validation or inf):
            found.append(
                f"{arm.name}: in the searches its validation error was lower by the paper's recipe "
                f"({result.form(before.validation or 0.0)}) than in this grid ({result.form(one.validation or 0.0)})."
            )
    return found


def _tries(search: Search | None) -> list[Try]:
    return [] if search is None else search.tries


def _chosen(search: Search | None) -> Try | None:
    return None if search is None or search.chosen is None else search.tries[search.chosen]


def not_yet(result: Result, track: str) -> str:
    names = [
        one.name + ("" if one in result.untested else ", as it is asked for now") + _so_far(result, one)
        for one in result.missing
        if one.track == track
    ]
    return f"Not finished yet: {'; '.join(names)}." if names else ""


def _so_far(result: Result, arm: Missing) -> str:
    """Of an arm some of whose seeds are finished."""
    errors = [run.curve["test_error"][-1] for run in arm.runs if not run.diverged]
    if not errors:
        return ""
    return f" ({len(arm.runs)} of {arm.seeds} seeds are, at {result.spread(errors)} after the last epoch)"


def networks(results: list[Result]) -> list[Run]:
    """Each network once, even if several experiments show it."""
    runs = [run for result in results for arm in (*result.arms, *result.missing) for run in arm.runs]
    return list({repr(sorted(run.recipe.items())): run for run in runs}.values())


def origin(results: list[Result]) -> list[str]:
    """The machines, the time and the code versions of training; those that trained the most come first."""
    parts = [part for run in networks(results) for part in run.summary["trained"]]
    devices = Counter(part["machine"]["device"] for part in parts).most_common()
    commits = Counter(part["machine"]["commit"][:12] for part in parts).most_common()
    lines = [f"{len(networks(results))} networks are finished and tested."]
    for device, _ in devices:
        own = [part for part in parts if part["machine"]["device"] == device]
        versions = {
            ", ".join(f"{name} {version}" for name, version in part["machine"]["software"].items()) for part in own
        }
        minutes = sum(part["seconds"] for part in own) / 60
        lines.append(f"{minutes:.1f} minutes on {device} ({'; '.join(sorted(versions))}).")
    if commits:
        lines.append(f"By the code of {', '.join(commit for commit, _ in commits)}.")
    return lines

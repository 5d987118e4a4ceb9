"""Two networks side by side: which are compared, who learns sooner, and where both end."""

from collections.abc import Callable, Iterator
from math import isfinite

from glstm.report.intervals import Difference
from glstm.report.results import LEARNT, Arm, Result, Rows

# The tables of the paper, which both networks run on both tracks.
TASKS = {
    "table1-adding1000": "adding, 1000 steps",
    "table1-adding2000": "adding, 2000 steps",
    "table1-smnist": "sequential MNIST",
    "table2-pmnist": "permuted MNIST",
    "table1-scifar": "sequential CIFAR-10",
}
PAPER = {  # errors of the g-LSTM and of the LSTM there
    "table1-adding1000": ("3.8e-05", "1.4e-03"),
    "table1-adding2000": ("1.3e-03", "1.6e-01"),
    "table1-smnist": ("1.30 %", "1.80 %"),
    "table2-pmnist": ("7.50 %", "8.40 %"),
    "table1-scifar": ("41.10 %", "41.80 %"),
}

OF_THE_PAPER = ["paper: g-LSTM", "paper: LSTM"]  # columns
Results = dict[str, Result]
Pair = tuple[Result, Arm, Arm]  # a network with gates, and the plain one that it is compared with


def pairs(results: Results, track: str, names: list[str] | None = None) -> Iterator[Pair]:
    """All pairs of twins of a track, each once, even if several experiments show them."""
    seen = set()
    for name in results if names is None else (name for name in names if name in results):
        for gated, plain in results[name].twins(track):
            if name != "gradflow" and (gated.recipes, plain.recipes) not in seen:
                seen.add((gated.recipes, plain.recipes))
                yield results[name], gated, plain


def level(arm: Arm) -> str:
    """The error at which its task counts as learnt."""
    value = LEARNT.get(arm.task, 0.0)
    return f"{100 * value:g} %" if arm.runs[0].summary["as_percent"] else f"{value:g}"


def half(arm: Arm) -> str:
    """The epoch by which half of the seeds have learnt the task."""
    return f"{arm.learnt_typically:g}" if isfinite(arm.learnt_typically) else f"not in {arm.epochs}"


def is_sooner(gated: Arm, plain: Arm) -> bool:
    return gated.learnt_typically < plain.learnt_typically


def label(result: Result, arm: Arm) -> str:
    """A pair in words."""
    task = TASKS.get(result.name, result.title)
    return task + arm.name.removeprefix("g-LSTM")


def against(result: Result, gated: Arm, plain: Arm) -> str:
    """Two networks in words."""
    text = f"{result.spread(gated.errors)}, the LSTM at {result.spread(plain.errors)}"
    found = gated.minus(plain)
    return f"{text} (difference {difference_in_words(result, found)})" if found else text


def difference_in_words(result: Result, found: Difference) -> str:
    unit = " points" if result.as_percent else ""
    value, interval = result.interval(found).removesuffix(")").split(" (")
    return f"{value}{unit}, 95 % interval {interval}"


def ends(compared: list[Pair]) -> Rows:
    """Where both networks end, and whether the difference is more than chance."""
    rows: Rows = [["", *OF_THE_PAPER, "g-LSTM", "LSTM", "seeds", "difference, 95 % interval"]]
    for result, gated, plain in compared:
        paper = ["" if arm.paper is None else result.form(arm.paper) for arm in (gated, plain)]
        counts = [len(arm.runs) for arm in (gated, plain)]
        seeds = str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} and {counts[1]}"
        own = [result.spread(arm.errors) for arm in (gated, plain)]
        rows.append([label(result, gated), *paper, *own, seeds, result.interval(gated.minus(plain))])
    return rows


def of_track(rows: Rows, track: str) -> Rows:
    """The paper's figures are of its own recipe, and stand in no row with those of another."""
    kept = [number for number, name in enumerate(rows[0]) if track == "paper" or name not in OF_THE_PAPER]
    return [[row[number] for number in kept] for row in rows]


def learns_sooner(pair: Pair) -> bool:
    return is_sooner(*pair[1:])


def ends_lower(pair: Pair) -> bool:
    """By more than chance."""
    found = pair[1].minus(pair[2])
    return found is not None and found.lower


def ends_higher(pair: Pair) -> bool:
    found = pair[1].minus(pair[2])
    return found is not None and found.higher


def on_tasks(rule: Callable[[Pair], bool], compared: list[Pair]) -> str:
    """On how many of the tasks the rule holds, and on which, or on which not, whichever are fewer."""
    so, not_so = ([TASKS[pair[0].name] for pair in compared if rule(pair) is holds] for holds in (True, False))
    which = ""  # tasks' names may have commas in them
    if so and not_so:
        which = f" (on {' and on '.join(so)})" if len(so) < len(not_so) else f" (not on {', nor on '.join(not_so)})"
    return f"on {len(so)} of {len(compared)} tasks{which}"

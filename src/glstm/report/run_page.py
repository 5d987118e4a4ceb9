"""The page of anybody's runs: for each task a table of its networks, their figures, and what tells them apart."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import mean, median, stdev

from glstm.report.page import table, whole
from glstm.report.results import Rows, listed
from glstm.report.run_figures import figures
from glstm.report.runs import Comparison, Network, Task, TrainedRun, shown
from glstm.report.tables import drop_empty

HOW = (
    "A network is a line: mean ± standard deviation over its finished seeds, and of openness the mean. 'mean k' is how "
    "open units are, over all steps; 'open' the share of updates that are made. Seconds are those of training, the "
    "median over epochs."
)
UNFINISHED = "unfinished"


def runs_page(comparisons: list[Comparison], commands: Mapping[Path, str] | None = None) -> str:
    """`commands`: for run folders, the command that repeats the run."""
    runs = [run for comparison in comparisons for network in comparison.networks for run in network.runs]
    networks = sum(len(comparison.networks) for comparison in comparisons)
    count = f"{_count(len(runs), 'run')} of {_count(networks, 'network')}"
    software = "; ".join(dict.fromkeys(run.software for run in runs if run.software))
    intro = f'<p class="soft">{escape(f"{count} ({software})" if software else count)}. {escape(HOW)}</p>'
    links = "".join(
        f'<li><a href="#task{number}">{escape(comparison.task.name)}</a></li>'
        for number, comparison in enumerate(comparisons, 1)
    )
    nav = f"<nav><ul>{links}</ul></nav>" if len(comparisons) > 1 else ""
    sections = "".join(_section(one, f"task{number}", commands or {}) for number, one in enumerate(comparisons, 1))
    return whole("glstm: runs", "Runs of glstm train", f"{intro}{nav}{sections}")


def _section(comparison: Comparison, name: str, commands: Mapping[Path, str]) -> str:
    task = comparison.task
    return (
        f'<section id="{name}"><h2>{escape(task.name)}</h2><p>{escape(about(task))}</p>'
        f'<div class="scroll dense">{table(networks_table(comparison), coloured=True)}</div>'
        f'<p class="verdict">{escape(how_chosen(comparison))}</p>'
        f'<div class="all">{figures(comparison, name)}</div>{_settings(comparison)}{_commands(comparison, commands)}'
        "</section>"
    )


def about(task: Task) -> str:
    """What the task is, in one sentence."""
    answers = _count(task.outputs, "output" if task.classes is None else "class")
    if task.classes is not None and len(task.classes) <= 12:
        answers += f" ({', '.join(map(str, task.classes))})"
    labels = {"train": "training", "validation": "validation", "test": "test"}
    sizes = [f"{size:,} {labels.get(part, part)}" for part, size in task.sequences.items() if size]
    up_to = "up to " if task.may_be_shorter else ""
    shape = f"{up_to}{_count(task.steps, 'step')}, {_count(task.inputs, 'input')}, {answers}"
    return f"{listed(sizes)} sequences of {shape}." if sizes else f"Sequences of {shape}."


def how_chosen(comparison: Comparison) -> str:
    metric = comparison.task.metric
    if not comparison.has_validation:
        return f"There is no validation part: the test {metric} is that of the last epoch, never of the best one."
    charged = any(network.first.choices.get("budget") for network in comparison.networks)
    lowest = f"lowest validation {comparison.task.chosen_by}" + (
        " (with a budget, of loss and charge together)" if charged else ""
    )
    if comparison.task.sequences.get("test") == 0:
        return f"Validation chose each run's epoch, that with the {lowest}; there is no test part."
    said = f"Validation chose each run's epoch, that with the {lowest}, and the test part was used once, at that epoch"
    if len(comparison.networks) > 1:
        return f"{said}: choose between networks by their validation {metric}, too."
    return f"{said}."


def networks_table(comparison: Comparison) -> Rows:
    metric, validation = comparison.task.metric, comparison.has_validation
    epoch = "best epoch" if validation else "epochs"
    figures = [epoch, f"validation {metric}", f"test {metric}", "mean k", "open"]
    head = ["network", "seeds", "units", "parameters", *figures, "seconds an epoch", "begun on"]
    return drop_empty([head, *(_row(network, comparison) for network in comparison.networks)])


def _row(network: Network, comparison: Comparison) -> list[str]:
    first = network.first
    size = ["" if value is None else f"{value:,}" for value in (first.units, first.parameters)]
    machines = "; ".join(dict.fromkeys(run.begun_on for run in network.runs if run.begun_on))
    return [network.name, _seeds(network), *size, *_figures(network, comparison), _seconds(network), machines]


def _seeds(network: Network) -> str:
    runs, finished = len(network.runs), len(network.outcomes)
    return f"{runs}, {runs - finished} {UNFINISHED}" if 0 < finished < runs else str(runs)


def _figures(network: Network, comparison: Comparison) -> list[str]:
    """Of the runs that are finished; of none, how far they are."""
    form, outcomes = comparison.task.form, network.outcomes
    if not outcomes:
        done = _span([len(run.history) for run in network.runs])
        validation = UNFINISHED if comparison.has_validation else ""
        return [f"{done} of {network.first.planned}", validation, UNFINISHED, "", ""]
    last = _span([one.epochs for one in outcomes])
    epoch = f"{_span([one.epoch for one in outcomes])} of {last}" if comparison.has_validation else last
    return [
        epoch,
        _spread([one.validation_error for one in outcomes], form),
        _spread([one.test_error for one in outcomes], form),
        _mean([one.mean_k for one in outcomes], lambda value: f"{value:.3f}"),
        _mean([one.open_share for one in outcomes], lambda value: f"{100 * value:.1f} %"),
    ]


def _spread(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """Mean and standard deviation, if there are several."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return _mean(values, form)
    return f"{_mean(values, form).removesuffix(' %')} ± {form(stdev(known))}"  # one sign of percent for both


def _mean(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return form(mean(known)) if known else ""


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


def _seconds(network: Network) -> str:
    rows = [row for run in network.runs for row in run.history]
    if not rows:
        return ""
    together = max(row.together for row in rows)
    return f"{median(row.seconds for row in rows):.2g}" + (f" ({together} together)" if together > 1 else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def _settings(comparison: Comparison) -> str:
    """What differs between the networks, if there are several."""
    names = comparison.differing()
    if not names:
        return ""
    rows = [
        [network.name, *(shown(network.first.choices.get(name)) for name in names)] for network in comparison.networks
    ]
    head = ["network", *(name.replace("_", " ") for name in names)]
    text = "All other settings are the same; a dash is a setting that the network leaves to its usual value."
    shown_as = table([head, *rows], coloured=True)
    return f'<h3>Settings that differ</h3><p class="soft">{text}</p><div class="scroll dense">{shown_as}</div>'


def _commands(comparison: Comparison, commands: Mapping[Path, str]) -> str:
    """For each network that of its first seed; with several seeds, for all of them if they are counted up from it."""
    known = [network for network in comparison.networks if network.first.path in commands]
    if not known:
        return ""
    lines = "\n".join(f"{commands[network.first.path]}{_all_seeds(network.runs)}" for network in known)
    return f"<h3>To repeat it</h3><pre>{escape(lines)}</pre>"


def _all_seeds(runs: Sequence[TrainedRun]) -> str:
    counted = [run.seed for run in runs] == list(range(runs[0].seed, runs[0].seed + len(runs)))
    return f" --seeds {len(runs)}" if counted and len(runs) > 1 else ""

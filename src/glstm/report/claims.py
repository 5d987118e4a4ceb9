"""The paper's four claims, each with the evidence in the results and a verdict that follows from it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from statistics import StatisticsError, mean, median

from glstm.errors import UserError
from glstm.report.results import EARLY, Arm, Result, Rows

# The error at which a network counts as having learnt the task. An LSTM of the paper gets there, or nearly.
LEARNT = {"adding": 0.01, "smnist": 0.05, "pmnist": 0.12, "scifar": 0.5}
V_T = 0.01
LITTLE = 0.003  # "little degradation" of the error: 0.3 points

Results = dict[str, Result]


@dataclass(frozen=True)
class Claim:
    says: str
    evidence: Rows
    verdict: str


def claims(results: list[Result]) -> list[Claim]:
    """The claims for which there are results."""
    found = {result.name: result for result in results if not result.missing}
    makers: tuple[tuple[Callable[[Results], Claim], set[str]], ...] = (
        (_convergence, {"table1-adding1000", "table1-adding2000", "table1-smnist", "table1-scifar", "gradflow"}),
        (_trainability, {"table1-adding1000", "fig3-trainability", "appB-inits", "appC-plstm"}),
        (_budget, {"budget", "threshold", "truncated"}),
        (_curriculum, {"curriculum"}),
    )
    return [_made(make, found, needed) for make, needed in makers if needed <= set(found)]


def _made(make: Callable[[Results], Claim], found: Results, needed: set[str]) -> Claim:
    """A result may be whole, and still not be that of the experiment whose name it has."""
    try:
        return make(found)
    except (LookupError, ArithmeticError, StatisticsError, StopIteration, ValueError) as error:
        if isinstance(error, UserError):
            raise
        names = ", ".join(f"{name}.json" for name in sorted(needed))
        raise UserError(
            f"{names} do not hold the networks of these experiments, {error!r:.100}: glstm reproduce writes them"
        ) from None


def learnt_at(arm: Arm) -> float:
    return LEARNT[arm.runs[0].summary["recipe"]["task"]]


def epochs_to_learn(arm: Arm) -> float | None:
    """Epochs until the task counts as learnt by its test error, mean over seeds; None if a seed never learns it."""
    level = learnt_at(arm)
    reached = [
        next((n for n, error in enumerate(run.curve["test_error"][: arm.epochs], 1) if error <= level), None)
        for run in arm.runs
    ]
    counts = [n for n in reached if n is not None]
    return mean(counts) if len(counts) == len(reached) else None


def _convergence(results: Results) -> Claim:
    rows: Rows = [["", "learnt at", "g-LSTM, epochs", "LSTM, epochs", "g-LSTM at the end", "LSTM at the end"]]
    pairs = [_Compared(result, gated, plain) for result, gated, plain in _pairs(results)]
    tables = [result for name, result in results.items() if name.startswith("table")]
    soonest = [
        _Compared(result, *(min(_of(cell, result), key=_when) for cell in ("glstm", "lstm"))) for result in tables
    ]
    rows += [one.row(one.label) for one in pairs]
    rows += [one.row(f"{one.result.name}, the soonest of each") for one in soonest]
    sooner = sum(_sooner(*one.epochs) for one in pairs)
    word = "Holds" if sooner == len(pairs) else "Holds mostly" if sooner > len(pairs) / 2 else "Does not hold"
    verdict = f"{word}: the g-LSTM has learnt its task in fewer epochs in {sooner} of {len(pairs)} pairs"
    ratios = [plain / gated for gated, plain in (one.epochs for one in pairs) if gated and plain]
    if ratios:
        verdict += f", {median(ratios):.1f} times fewer in the median where both learn"
    ahead = [one.label for one in pairs if one.ends[1] < one.ends[0]]
    verdict += f"; at the end the LSTM is ahead in {len(ahead)}" + (f" ({'; '.join(ahead)}). " if ahead else ". ")
    lost = [one.result.name for one in soonest if _sooner(*reversed(one.epochs))]
    verdict += "Of all recipes in a table, the first to learn is an LSTM's in " + (", ".join(lost) or "none")
    verdict += (
        f". The gradient at the first {EARLY} steps of sMNIST is {_early_gradient(results['gradflow'])} the LSTM's."
    )
    return Claim("The g-LSTM converges faster than the LSTM, above all beyond 500 steps.", rows, verdict)


@dataclass(frozen=True)
class _Compared:
    """A g-LSTM and an LSTM: when each has learnt its task, and its final error."""

    result: Result
    gated: Arm
    plain: Arm

    @property
    def label(self) -> str:
        return self.result.name + self.gated.name.removeprefix("g-LSTM")

    @property
    def epochs(self) -> tuple[float | None, float | None]:
        return epochs_to_learn(self.gated), epochs_to_learn(self.plain)

    @property
    def ends(self) -> tuple[float, float]:
        return mean(self.gated.errors), mean(self.plain.errors)

    def row(self, label: str) -> list[str]:
        form = self.result.form
        return [label, form(learnt_at(self.gated)), *map(_count, self.epochs), *map(form, self.ends)]


def _pairs(results: Results) -> Iterator[tuple[Result, Arm, Arm]]:
    """All pairs of twins, each once, even if several experiments show them."""
    seen = set()
    for result in results.values():
        for gated, plain in result.twins():
            if result.name != "gradflow" and (gated.recipes, plain.recipes) not in seen:
                seen.add((gated.recipes, plain.recipes))
                yield result, gated, plain


def _of(cell: str, result: Result) -> list[Arm]:
    return [arm for arm in result.arms if arm.cell == cell]


def _early_gradient(result: Result) -> str:
    """The ratio to the LSTM's value, after each of the epochs measured."""

    def early(arm: Arm) -> float:
        return mean(run.early_gradient for run in arm.runs)

    ratios = [(gated, early(gated) / max(early(plain), 1e-38)) for gated, plain in result.twins()]
    return " and ".join(f"{ratio:.2g} times (after epoch {arm.epochs})" for arm, ratio in ratios)


def _trainability(results: Results) -> Claim:
    table = results["table1-adding1000"]
    starts = [table.arm("glstm"), *results["fig3-trainability"].arms, *results["appB-inits"].arms]
    phased = _of("plstm", results["appC-plstm"])
    rows: Rows = [["", "paper", "ours", "from", "to", "mu moved by", "sigma moved by"]]
    for arm in (*starts, *phased, *_of("lstm", table)):
        moved = [_moved(arm, name) for name in ("mu", "sigma")] if arm in starts else ["", ""]
        paper = "" if arm.paper is None else table.form(arm.paper)
        errors = mean(arm.errors), min(arm.errors), max(arm.errors)
        rows.append([arm.name, paper, *map(table.form, errors), *moved])
    means = [mean(arm.errors) for arm in starts]
    learnt = sum(error < LEARNT["adding"] for error in means)
    between, within = max(means) / min(means), max(max(arm.errors) / min(arm.errors) for arm in starts)
    epochs = min(arm.epochs for arm in phased)  # they were given fewer
    best = min(mean(arm.errors) for arm in phased)
    below = sum(mean(run.after(epochs) for run in arm.runs) < best for arm in starts)
    more = "more" if between > within else "no more"
    verdict = (
        f"{_word(learnt == len(starts))}: the task is learnt from {learnt} of {len(starts)} starts, which end at mean "
        f"squared errors from {table.form(min(means))} to {table.form(max(means))}; starts differ by a factor of "
        f"{between:.0f}, {more} than seeds of one start, by up to {within:.0f}. After {epochs} epochs {below} of the "
        f"{len(starts)} are below the best Phased LSTM."
    )
    return Claim("Gates adapt to the task, even from extreme starts.", rows, verdict)


def _moved(arm: Arm, name: str) -> str:
    """Mean distance between a gate's value before training and after it."""
    gates = [run.summary["probes"]["gates"] for run in arm.runs]
    return f"{mean(abs(b - a) for one in gates for a, b in zip(one['before'][name], one['after'][name])):.0f}"


def _budget(results: Results) -> Claim:
    result = results["budget"]
    wide = results["threshold"].arm("no-budget")
    arms = [*result.arms, results["truncated"].arm("from-the-start"), wide]
    rows: Rows = [["", "paper", "error", f"error at v_T = {V_T}", "open", "operations, paper's count", "ours, exact"]]
    for arm in arms:
        error, share, paper, exact = _closed(arm, "error", "open_share", "paper_ops", "cached_ops")
        quoted = "" if arm.paper is None else result.form(arm.paper)
        counts = [f"{paper / 1e6:.2f} M", f"{exact / 1e6:.2f} M"]
        rows.append([arm.name, quoted, result.form(arm.at_the_end), result.form(error), _percent(share), *counts])
    (control, open_before), (error, share) = (
        _closed(result.arm(key), "error", "open_share") for key in ("lambda-0", "lambda-1")
    )
    holds = error <= control + LITTLE and share < open_before / 2
    verdict = (
        f"{_word(holds)}: with lambda = 1, and units at k <= {V_T} closed, {_percent(share)} of the updates are left "
        f"at an error of {result.form(error)}; without a budget, from the same start, {_percent(open_before)} at "
        f"{result.form(control)}. But the narrow start has its price: from sigma = 250, fully open, it is "
        f"{result.form(wide.at_the_end)}."
    )
    return Claim("A budget in the loss closes gates, with little or no loss of accuracy.", rows, verdict)


def _closed(arm: Arm, *names: str) -> list[float]:
    """Means over seeds, with units at k <= V_T closed."""
    tested = [run.at_threshold(V_T) for run in arm.runs]
    return [mean(one[name] for one in tested) for name in names]


def _curriculum(results: Results) -> Claim:
    result = results["curriculum"]
    taught, plain = arms = result.arm("curriculum"), result.arm("lstm")
    level = result.form(learnt_at(plain))
    rows: Rows = [["", f"epochs to {level}", "at the end, as an LSTM", "from", "to"]]
    counts = [epochs_to_learn(arm) for arm in arms]
    for arm, count in zip(arms, counts):
        rows.append([arm.name, _count(count), *map(result.form, (mean(arm.errors), min(arm.errors), max(arm.errors)))])
    ends = mean(taught.errors), mean(plain.errors)
    sooner = _sooner(*counts)
    word = "Holds" if sooner and ends[0] <= ends[1] else "Holds in part" if sooner else "Does not hold"
    verdict = (
        f"{word}: behind its narrow gates the network is at an error of {level} after {_count(counts[0])} epochs, the "
        f"plain LSTM after {_count(counts[1])}; opened, and taken as an LSTM, it ends at {result.form(ends[0])}, the "
        f"plain one at {result.form(ends[1])}."
    )
    return Claim("A temporal curriculum speeds up the convergence of an LSTM.", rows, verdict)


def _word(holds: bool) -> str:
    return "Holds" if holds else "Does not hold"


def _when(arm: Arm) -> float:
    epochs = epochs_to_learn(arm)
    return inf if epochs is None else epochs


def _sooner(ours: float | None, theirs: float | None) -> bool:
    return ours is not None and (theirs is None or ours < theirs)


def _count(epochs: float | None) -> str:
    return "never" if epochs is None else f"{epochs:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

"""The paper's four claims, each with the evidence that the results hold and a verdict that follows from it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, median

from glstm.report.results import Arm, Result, Rows

# The error at which a network counts as having learnt the task. An LSTM of the paper gets there, or nearly.
LEARNT = {"adding": 0.01, "smnist": 0.05, "pmnist": 0.12, "scifar": 0.5}
EARLY = 100  # steps at the start of a sequence, for the gradient that reaches them
V_T = 0.01
LITTLE = 0.003  # "little degradation" of the error: 0.3 points

Results = dict[str, Result]


@dataclass(frozen=True)
class Claim:
    says: str
    evidence: Rows
    verdict: str


def claims(results: list[Result]) -> list[Claim]:
    """Those that the results at hand say something about."""
    found = {result.name: result for result in results if not result.missing}
    makers: tuple[tuple[Callable[[Results], Claim], set[str]], ...] = (
        (_convergence, {"table1-adding1000", "table1-adding2000", "table1-smnist", "table1-scifar", "gradflow"}),
        (_trainability, {"table1-adding1000", "fig3-trainability", "appB-inits", "appC-plstm"}),
        (_budget, {"budget", "threshold", "truncated"}),
        (_curriculum, {"curriculum"}),
    )
    return [make(found) for make, needed in makers if needed <= set(found)]


def epochs_to_learn(arm: Arm, level: float) -> float | None:
    """Epochs until the test error is down to the level, mean over seeds; None if a seed never gets there."""
    reached = [
        next((n for n, error in enumerate(run.curve["test_error"][: arm.epochs], 1) if error <= level), None)
        for run in arm.runs
    ]
    counts = [n for n in reached if n is not None]
    return mean(counts) if len(counts) == len(reached) else None


def twins(result: Result) -> Iterator[tuple[Arm, Arm]]:
    """A g-LSTM and an LSTM that differ in nothing else."""
    arms = {arm.name: arm for arm in result.arms}
    for name, arm in arms.items():
        twin = arms.get(name.removeprefix("g-"))
        if twin is not None and twin is not arm:
            yield arm, twin


def _convergence(results: Results) -> Claim:
    rows: Rows = [["", "learnt at", "g-LSTM, epochs", "LSTM, epochs", "g-LSTM at the end", "LSTM at the end"]]
    sooner, ahead, ratios, seen = 0, [], [], set()
    for result in results.values():
        for gated, plain in twins(result):
            if result.name == "gradflow" or (gated.recipes, plain.recipes) in seen:
                continue
            seen.add((gated.recipes, plain.recipes))
            level = LEARNT[gated.runs[0].summary["recipe"]["task"]]
            ours, theirs = (epochs_to_learn(arm, level) for arm in (gated, plain))
            sooner += _sooner(ours, theirs)
            if ours and theirs:
                ratios.append(theirs / ours)
            label = result.name + gated.name.removeprefix("g-LSTM")
            ends = mean(gated.errors), mean(plain.errors)
            ahead += [label] if ends[1] < ends[0] else []
            rows.append([label, result.form(level), _count(ours), _count(theirs), *map(result.form, ends)])
    pairs = len(seen)
    word = "Holds" if sooner == pairs else "Holds mostly" if sooner > pairs / 2 else "Does not hold"
    verdict = f"{word}: the g-LSTM has learnt its task in fewer epochs in {sooner} of {pairs} pairs"
    if ratios:
        verdict += f", {median(ratios):.1f} times fewer in the median where both learn"
    verdict += f"; at the end the LSTM is ahead in {len(ahead)}" + (f" ({'; '.join(ahead)}). " if ahead else ". ")
    verdict += (
        f"The gradient at the first {EARLY} steps of sMNIST is {_early_gradient(results['gradflow'])} the LSTM's."
    )
    return Claim("The g-LSTM converges faster than the LSTM, above all beyond 500 steps.", rows, verdict)


def _early_gradient(result: Result) -> str:
    """How many times as large as the LSTM's, after each of the epochs looked at."""

    def early(arm: Arm) -> float:
        return mean(mean(run.summary["probes"]["gradient flow"][:EARLY]) for run in arm.runs)

    ratios = [(gated, early(gated) / max(early(plain), 1e-38)) for gated, plain in twins(result)]
    return " and ".join(f"{ratio:.2g} times ({arm.name.removeprefix('g-LSTM, ')})" for arm, ratio in ratios)


def _trainability(results: Results) -> Claim:
    table = results["table1-adding1000"]
    starts = [table.arm("g-LSTM"), *results["fig3-trainability"].arms, *results["appB-inits"].arms]
    others = [results["appC-plstm"].arm("PLSTM"), table.arm("LSTM")]
    rows: Rows = [["", "paper", "ours", "mu moved by", "sigma moved by"]]
    for arm in (*starts, *others):
        moved = [_moved(arm, name) for name in ("mu", "sigma")] if arm in starts else ["", ""]
        paper = "" if arm.paper is None else table.form(arm.paper)
        rows.append([arm.name, paper, table.form(mean(arm.errors)), *moved])
    errors = [mean(arm.errors) for arm in starts]
    best, worst = min(errors), max(errors)
    below = sum(error < mean(others[0].errors) for error in errors)
    learnt = sum(error < LEARNT["adding"] for error in errors)
    verdict = (
        f"{_word(learnt == len(starts))}: the task is learnt from {learnt} of {len(starts)} starts, which end at mean "
        f"squared errors from {table.form(best)} to {table.form(worst)}, {below} of them below the Phased LSTM; so "
        f"where a gate starts is not indifferent, as the paper has it, but a matter of a factor of {worst / best:.0f}."
    )
    return Claim("Gates adapt to the task, even from extreme starts.", rows, verdict)


def _moved(arm: Arm, name: str) -> str:
    """Mean distance between a gate's value before training and after it."""
    gates = [run.summary["probes"]["gates"] for run in arm.runs]
    return f"{mean(abs(b - a) for one in gates for a, b in zip(one['before'][name], one['after'][name])):.0f}"


def _budget(results: Results) -> Claim:
    result = results["budget"]
    arms = [*result.arms, results["truncated"].arm("thresholded from the start")]
    rows: Rows = [["", "paper", "error", f"error at v_T = {V_T}", "open", "operations, paper's count", "ours, exact"]]
    closed = {}
    for arm in arms:
        tested = [run.at_threshold(V_T) for run in arm.runs]
        error, share, paper, exact = (
            mean(one[name] for one in tested) for name in ("error", "open_share", "paper_ops", "cached_ops")
        )
        closed[arm.name] = error, share
        quoted = "" if arm.paper is None else result.form(arm.paper)
        counts = [f"{paper / 1e6:.2f} M", f"{exact / 1e6:.2f} M"]
        rows.append([arm.name, quoted, result.form(arm.at_the_end), result.form(error), _percent(share), *counts])
    (control, open_before), (error, share) = closed["lambda = 0"], closed["lambda = 1"]
    holds = error <= control + LITTLE and share < open_before / 2
    verdict = (
        f"{_word(holds)}: with lambda = 1, and units at k <= {V_T} closed, {_percent(share)} of the updates are left "
        f"at an error of {result.form(error)}; without a budget, from the same start, {_percent(open_before)} at "
        f"{result.form(control)}."
    )
    return Claim("A budget in the loss closes gates, with little or no loss of accuracy.", rows, verdict)


def _curriculum(results: Results) -> Claim:
    result, level = results["curriculum"], LEARNT["scifar"]
    rows: Rows = [["", f"epochs to {result.form(level)}", "at the end, as an LSTM"]]
    arms = result.arm("curriculum"), result.arm("LSTM")
    ours, theirs = counts = [epochs_to_learn(arm, level) for arm in arms]
    taught, plain = ends = [result.form(mean(arm.errors)) for arm in arms]
    rows += [[arm.name, _count(count), end] for arm, count, end in zip(arms, counts, ends)]
    verdict = (
        f"{_word(_sooner(ours, theirs))}: with the curriculum it takes {_count(ours)} epochs to an error of "
        f"{result.form(level)}, without {_count(theirs)}; at the end the LSTM that was taught stands at {taught}, the "
        f"one trained plainly at {plain}."
    )
    return Claim("A temporal curriculum speeds up the convergence of an LSTM.", rows, verdict)


def _word(holds: bool) -> str:
    return "Holds" if holds else "Does not hold"


def _sooner(ours: float | None, theirs: float | None) -> bool:
    return ours is not None and (theirs is None or ours < theirs)


def _count(epochs: float | None) -> str:
    return "never" if epochs is None else f"{epochs:.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"

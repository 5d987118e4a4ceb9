"""The paper's claims and ours: each with a badge and a sentence that follow from the results, and the figures.

A badge is given when every experiment that a claim needs is finished; until then the claim is not judged, and its
sentence says what came out so far. Networks of two tracks are never compared.
"""

from collections.abc import Callable
from math import inf, log, sqrt
from statistics import mean

from glstm.report.claim import FAILS, HOLDS, IN_PART, NOTHING, OPEN, Claim, badge_for, finished, sentence_of, share
from glstm.report.comparisons import (
    TASKS,
    Pair,
    Results,
    against,
    difference_in_words,
    ends,
    ends_higher,
    ends_lower,
    half,
    is_sooner,
    label,
    learns_sooner,
    level,
    of_track,
    on_tasks,
    pairs,
)
from glstm.report.frontier import V_T
from glstm.report.intervals import difference
from glstm.report.results import TRACKS, Arm, Result, Rows, Run, millions, percent
from glstm.report.thrift import thrift

LITTLE = 0.003  # "little degradation" of the error: 0.3 points
LONG = 500  # steps: "over 500"


def claims(results: list[Result]) -> list[Claim]:
    found = {result.name: result for result in results}
    makers: tuple[Callable[[Results], Claim], ...] = (_sooner, _lower, _adapts, _budget, _curriculum, thrift)
    return [make(found) for make in makers]


def _sooner(results: Results) -> Claim:
    parts, evidence, counted = [], [], []
    for track in TRACKS:
        rows: Rows = [
            ["", "learnt at", "g-LSTM learns", "half of them by epoch", "LSTM learns", "half of them by epoch"]
        ]
        own = [*pairs(results, track)]
        for result, gated, plain in own:
            cells = [text for arm in (gated, plain) for text in (arm.learnt_count, half(arm))]
            rows.append([label(result, gated), level(gated), *cells])
        if own:
            evidence.append((TRACKS[track], rows))
        tables = [*pairs(results, track, [*TASKS])] if track != "given" else []
        counted += map(learns_sooner, tables)
        if tables:
            parts.append(_said_sooner(track, tables))
    lengths = [*pairs(results, "given", ["adding-lengths"])]
    if lengths:
        short, long = (
            [learns_sooner(pair) for pair in lengths if _is_long(pair[1]) == beyond] for beyond in (False, True)
        )
        counted += long
        parts.append(
            f"adding from three starts, it is sooner in {sum(short)} of {len(short)} comparisons up to {LONG} steps "
            f"and in {sum(long)} of {len(long)} beyond"
        )
    badge = badge_for(finished(results, *TASKS, "adding-lengths"), sum(counted), len(counted))
    says = "The g-LSTM converges faster than the LSTM, above all on sequences of more than 500 steps."
    return Claim(says, "paper", badge, sentence_of(badge, parts), evidence, _learning(results))


def _said_sooner(track: str, compared: list[Pair]) -> str:
    if len(compared) == 1:
        ((result, gated, plain),) = compared
        return (
            f"{_in_text(track)} half of the g-LSTM's seeds are under {level(gated)} on {TASKS[result.name]} by epoch "
            f"{half(gated)}, half of the LSTM's by epoch {half(plain)}"
        )
    return f"{_in_text(track)} the g-LSTM learns sooner {on_tasks(learns_sooner, compared)}"


def _is_long(arm: Arm) -> bool:
    return arm.runs[0].summary["steps"] > LONG


def _in_text(track: str) -> str:
    words = TRACKS[track]
    return words[0].lower() + words[1:] + ("" if track == "paper" else ",")


def _learning(results: Results) -> tuple[str, str] | None:
    shown = [name for name in ("table1-smnist", *TASKS) if name in results and results[name].twins("paper")]
    return (shown[0], "learning paper") if shown else None


def _lower(results: Results) -> Claim:
    parts, evidence, counted = [], [], []
    for track in ("paper", "best"):
        own = [*pairs(results, track, [*TASKS])]
        if not own:
            continue
        evidence.append((TRACKS[track], of_track(ends(own), track)))
        counted += map(ends_lower, own)
        parts.append(_said_lower(track, own))
    badge = badge_for(finished(results, *TASKS), sum(counted), len(counted))
    says = "The g-LSTM ends at a lower error than the LSTM (Tables 1 and 2)."
    return Claim(says, "paper", badge, sentence_of(badge, parts), evidence, _spread(results))


def _said_lower(track: str, compared: list[Pair]) -> str:
    if len(compared) == 1:
        ((result, gated, plain),) = compared
        return f"{_in_text(track)} the g-LSTM is at {against(result, gated, plain)} on {TASKS[result.name]}"
    higher = [TASKS[pair[0].name] for pair in compared if ends_higher(pair)]
    return f"{_in_text(track)} the g-LSTM's error is lower by more than chance {on_tasks(ends_lower, compared)}" + (
        f", and higher on {', '.join(higher)}" if higher else ""
    )


def _spread(results: Results) -> tuple[str, str] | None:
    shown = [name for name in ("table1-smnist", *TASKS) if name in results and results[name].twins()]
    return (shown[0], "seeds") if shown else None


def _adapts(results: Results) -> Claim:
    found = [
        (results[name], arm)
        for name, keys in (("table1-adding1000", {"glstm"}), ("fig3-trainability", None), ("appB-inits", None))
        for arm in (results[name].arms if name in results else ())
        if arm.track == "paper" and (keys is None or arm.key in keys)
    ]
    rows: Rows = [["", "paper", "error", "learns", "mu moves by", "sigma moves by"]]
    for result, arm in found:
        paper = "" if arm.paper is None else result.form(arm.paper)
        rows.append([arm.name, paper, result.spread(arm.errors), arm.learnt_count, *_moves(arm)])
    learnt = [max(arm.learnt) < inf for _, arm in found]
    parts = []
    if found:
        means = [mean(arm.errors) for _, arm in found if arm.errors]
        form = found[0][0].form
        parts.append(
            f"by the paper's recipe every seed learns to add from {sum(learnt)} of {len(found)} starts of the gates"
            + (f", with mean errors from {form(min(means))} to {form(max(means))}" if means else "")
        )
        parts.append("whether networks learn to add with gates that stay where they start was not tested")
    judged = finished(results, "table1-adding1000", "fig3-trainability", "appB-inits")
    badge = badge_for(judged, sum(learnt), len(learnt))
    says = "Gates adapt to the task, even from extreme starts."
    shows = ("fig3-trainability", "gates") if finished(results, "fig3-trainability") else None
    return Claim(says, "paper", badge, sentence_of(badge, parts), [(TRACKS["paper"], rows)] if found else [], shows)


def _moves(arm: Arm) -> list[str]:
    """Mean distance between a gate's values before training and after it."""
    if not arm.has("gates"):
        return ["", ""]
    gates = [run.summary["probes"]["gates"] for run in arm.finished]
    return [
        f"{mean(abs(b - a) for one in gates for a, b in zip(one['before'][name], one['after'][name])):.0f}"
        for name in ("mu", "sigma")
    ]


def _budget(results: Results) -> Claim:
    arms = [(results["budget"], arm) for arm in (results["budget"].arms if "budget" in results else ())]
    wide = results["table1-smnist"].find("glstm") if "table1-smnist" in results else None
    rows: Rows = [
        ["", "paper", "error", f"error, k <= {V_T} closed", "open", "operations, exact", "closed for good, of units"]
    ]
    for result, arm in arms:
        closed = {name: [run.at_threshold(V_T)[name] for run in arm.finished] for name in ("error", "open_share")}
        exact = [run.at_threshold(V_T)["cached_ops"] for run in arm.finished]
        paper = "" if arm.paper is None else result.form(arm.paper)
        figures = [result.spread(arm.at_the_end), result.spread(closed["error"])]
        units = f"{mean(map(_never_open, arm.finished)):.0f} of {arm.runs[0].recipe['units']}" if exact else ""
        rows.append(
            [arm.name, paper, *figures, share(closed["open_share"]), millions(mean(exact)) if exact else "", units]
        )
    charged = next((arm for _, arm in arms if arm.key == "lambda-1"), None)
    parts: list[str] = []
    good, in_short = 0, ""
    if charged and wide and charged.finished:
        result = results["budget"]
        errors = [run.at_threshold(V_T)["error"] for run in charged.finished]
        exact = mean(run.at_threshold(V_T)["cached_ops"] for run in charged.finished)
        cost = difference(errors, wide.errors)
        good = (exact < mean(wide.operations) / 10) + (mean(errors) - mean(wide.errors) <= LITTLE)
        parts.append(
            f"by the paper's recipe a charge of lambda = 1 leaves {share(_column(charged, 'open_share'))} of the "
            f"updates and {millions(exact)} of {millions(mean(wide.operations))} operations, and the error is "
            f"{result.spread(errors)} where the network with wide gates and no charge has {result.spread(wide.errors)}"
            + (f" (difference {difference_in_words(result, cost)})" if cost else "")
            + f"; {mean(map(_never_open, charged.finished)):.0f} of {charged.runs[0].recipe['units']} units never open"
        )
        in_short = (
            f"By the paper's recipe a charge for openness leaves {millions(exact)} of "
            f"{millions(mean(wide.operations))} operations, and the error is {percent(mean(errors))} instead of "
            f"{percent(mean(wide.errors))}"
        )
    badge = badge_for(finished(results, "budget", "table1-smnist"), good, 2)
    badge = badge if parts else OPEN
    says = "A charge for openness saves work with little or no loss of accuracy, and shows which units can be pruned."
    shows = ("threshold", "thresholds") if finished(results, "threshold") else None
    evidence = [(TRACKS["paper"], rows)] if arms else []
    return Claim(says, "paper", badge, sentence_of(badge, parts), evidence, shows, in_short)


def _column(arm: Arm, name: str) -> list[float]:
    return [run.at_threshold(V_T)[name] for run in arm.finished]


def _never_open(run: Run) -> int:
    """Units that are at k <= V_T at every step."""
    values, steps = run.summary["probes"]["gates"]["after"], run.summary["steps"]
    reach = sqrt(-log(V_T))  # so many sigma from mu
    nearest = [abs(min(max(round(mu), 1), steps) - mu) for mu in values["mu"]]
    return sum(distance >= reach * abs(sigma) for distance, sigma in zip(nearest, values["sigma"]))


def _curriculum(results: Results) -> Claim:
    says = "A temporal curriculum speeds up the convergence of an LSTM."
    result = results.get("curriculum")
    arms = [result.find(key) for key in ("curriculum", "lstm")] if result else []
    if result is None or None in arms:
        return Claim(says, "paper", OPEN, NOTHING)
    taught, plain = (arm for arm in arms if arm)
    rows: Rows = [["", "learns", "half of them by epoch", "at the end, as an LSTM"]]
    rows += [[arm.name, arm.learnt_count, half(arm), result.spread(arm.errors)] for arm in (taught, plain)]
    found = taught.minus(plain)
    good = is_sooner(taught, plain), found is not None and not found.higher
    text = (
        f"behind its narrow gates half of the seeds are under {level(plain)} by epoch {half(taught)}, "
        f"of the plain LSTM's by epoch {half(plain)}; opened, it ends at {against(result, taught, plain)}"
    )
    badge = HOLDS if all(good) else IN_PART if good[0] else FAILS
    return Claim(
        says, "paper", badge, sentence_of(badge, [text]), [(TRACKS["given"], rows)], ("curriculum", "learning given")
    )

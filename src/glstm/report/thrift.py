"""Our own claim: for a given error, who takes the fewest operations?"""

from glstm.report.claim import Claim, badge_for, finished, sentence_of
from glstm.report.comparisons import Results
from glstm.report.frontier import (
    FRONTIER,
    GATED,
    PAPER_ERROR,
    PAPER_EXACT,
    SMALL,
    THRIFTY,
    Kind,
    Point,
    Searched,
    among_rivals,
    best_searched,
    cheapest,
    cheapest_beater,
    in_words,
    is_beaten,
    is_narrow,
    lacking,
    points,
    searched,
    unbeaten,
    without_recurrence,
)
from glstm.report.results import Rows, millions, percent, spread

SAYS = (
    "At a given error a g-LSTM with narrow gates takes fewer operations than a smaller LSTM or GRU, or a network that "
    "saves operations in another way."
)
NOT_HIGHER = "whose error is not clearly higher"
CHEAP = 0.25e6  # operations: what searches are asked for
PICTURE = ("", "frontier")  # the one on the first screen
CLOSED = "Narrow gates, units at k <= 0.01 closed, any recipe"


def thrift(results: Results) -> Claim:
    """Every other network that was tested may answer, whatever its track; the badge waits until all are."""
    every, tried = points(results), searched(results)
    gated = [point for point in every if point.name == GATED and is_narrow(point)]
    plain = [point for point in every if point.name != GATED]
    rival = among_rivals(point.name for point in plain)
    rows: Rows = [
        ["", "error", "operations, exact", "seeds", "cheapest that beats it", f"cheapest {rival} {NOT_HIGHER} (95 %)"]
    ]
    parts, in_short = [], ""
    for point in gated:
        rows.append([*_thrifty(point), _beaters([point], plain) or "none", _rival(cheapest(plain, point))])
    good = [point for point in gated if not is_beaten(point, plain)]
    if gated and plain:
        best = min(gated, key=lambda point: point.operations)
        in_short = f"{_in_short(gated, plain)}."
        parts.append(
            f"for {len(good)} of {len(gated)} g-LSTMs with narrow gates no {rival} that was tested has both a lower "
            f"error and fewer operations{_others_beaten([one for one in gated if one not in good], plain)}; the "
            f"cheapest is at {percent(best.error)} with {millions(best.operations)} operations, and "
            f"{_as_good(cheapest(plain, best), rival)}"
        )
        if untested := lacking(results, "tested"):
            in_short += f" {untested[0].upper()}{untested[1:]} are not tested yet."
    if gated and (apart := unbeaten(without_recurrence(results))):
        said = ", ".join(f"{_cost(one)} ({one.label})" for one in apart)
        parts.append(
            "not counted, because it is not recurrent, is a network with one hidden layer and weights of its own for "
            f"each pixel: {said}"
        )
    judged = finished(results, FRONTIER, SMALL, THRIFTY)
    if not judged:
        parts += _by_validation(tried)
        parts += [f"not {what} yet: {some}" for what in ("searched", "tested") if (some := lacking(results, what))]
    badge = badge_for(judged, len(good), len(gated))
    evidence = [(CLOSED, rows)] if gated else []
    return Claim(SAYS, "ours", badge, sentence_of(badge, parts), evidence, PICTURE, in_short)


def _others_beaten(beaten: list[Point], plain: list[Point]) -> str:
    return (
        f" (the other {len(beaten)} are beaten, with the fewest operations by {_beaters(beaten, plain)})"
        if beaten
        else ""
    )


def _beaters(beaten: list[Point], plain: list[Point]) -> str:
    """Of the networks that beat each of these, the cheapest; each once."""
    found = [cheapest_beater(point, plain) for point in beaten]
    return "; ".join(dict.fromkeys(f"{in_words(one)}, {_cost(one)}" for one in found if one))


def _in_short(gated: list[Point], plain: list[Point]) -> str:
    """The points of the frontier, whose limits of operations were set beforehand; where images move, if there are such.
    Without any, the cheapest network."""
    limited = [point for point in gated if point.arm.most_operations is not None]
    moved = [point for point in limited if point.arm.moved]
    shown = sorted(moved or limited, key=lambda point: point.arm.most_operations or 0.0)
    shown = shown or [min(gated, key=lambda point: point.operations)]
    where = "with training images shifted at random by a pixel" if moved else "without augmentation"
    said = " and at ".join(_cost(point) for point in shown)
    as_good = [cheapest(plain, point) for point in shown]
    rivals = "; ".join(f"{in_words(one)}, {_cost(one)}" if one else "none" for one in as_good)
    several = len(shown) > 1
    others = f"The cheapest other recurrent network{'s' if several else ''} tested {NOT_HIGHER}: {rivals}"
    if not any(as_good):
        others = (
            f"Every other recurrent network tested has a clearly higher error than {'these' if several else 'this'}"
        )
    return (
        f"Trained for few operations, with units closed, g-LSTMs are at {said} operations a sequence, {where}. {others}"
    )


def _by_validation(tried: list[Searched]) -> list[str]:
    """What the searches have, each of one seed: the best so far, of those that take few operations."""
    plain, moved = (best_searched(tried, Kind(GATED, moving), CHEAP) for moving in (False, True))
    small = [one for one in tried if one.name != GATED and one.operations <= PAPER_EXACT]
    parts = [f"{_cost(plain)} operations"] if plain else []
    parts += [f"{_cost(moved)} where images move"] if moved else []
    said = [f"a g-LSTM at {' and at '.join(parts)}"] if parts else []
    if small:
        best = min(small, key=lambda one: one.error)
        said.append(
            f"{in_words(best)} at {_cost(best)}, the best other recurrent network so far that takes no more than "
            f"the paper's network (about {millions(PAPER_EXACT)}, at {percent(PAPER_ERROR)})"
        )
    return [f"the searches (validation error, one seed) have {', and '.join(said)}"] if said else []


def _cost(point: Point | Searched) -> str:
    return f"{percent(point.error)} with {millions(point.operations)}"


def _thrifty(point: Point) -> list[str]:
    """Its name, error, operations and seeds."""
    return [point.arm.name, spread(point.arm.errors), millions(point.operations), str(len(point.arm.runs))]


def _rival(point: Point | None) -> str:
    return "none that was tested" if point is None else f"{millions(point.operations)} ({_named(point)})"


def _as_good(point: Point | None, rival: str) -> str:
    if point is None:
        return f"every {rival} that was tested has a clearly higher error"
    return f"the cheapest {rival} {NOT_HIGHER} takes {millions(point.operations)} ({_named(point)})"


def _named(point: Point) -> str:
    return f"{in_words(point)}, {percent(point.error)}"

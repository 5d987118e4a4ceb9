"""What a claim is, and how its badge and its sentence follow from what was found."""

from dataclasses import dataclass, field
from statistics import mean

from glstm.report.comparisons import Results
from glstm.report.results import Rows

BESIDE = {"lstm-longer"}  # arms that are shown, but that no claim needs

HOLDS, IN_PART, FAILS, OPEN = "holds", "holds in part", "does not hold", "not judged yet"
NOTHING = "No network of this is finished under this protocol."


@dataclass(frozen=True)
class Claim:
    """`shows` names a figure: an experiment, and what of it."""

    says: str
    whose: str
    badge: str
    sentence: str
    evidence: list[tuple[str, Rows]] = field(default_factory=list)  # a heading, and a table of one track
    shows: tuple[str, str] | None = None
    in_short: str = ""  # for the first screen, where the sentence is long


def finished(results: Results, *names: str) -> bool:
    """Whether nothing that a claim needs is missing in these experiments."""
    return all(name in results and {one.key for one in results[name].missing} <= BESIDE for name in names)


def badge_for(judged: bool, good: int, of: int) -> str:
    if not judged or not of:
        return OPEN
    return HOLDS if good == of else FAILS if good == 0 else IN_PART


def sentence_of(badge: str, parts: list[str]) -> str:
    if not parts:
        return NOTHING
    text = "; ".join(parts)
    return f"So far: {text}." if badge == OPEN else f"{text[0].upper()}{text[1:]}."


def share(values: list[float]) -> str:
    """The mean, of shares."""
    return f"{100 * mean(values):.1f} %" if values else ""

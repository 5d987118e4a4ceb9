"""What looks wrong about gates, in sentences: a layer says it once, as a warning; `glstm.check` says it when asked.

The limits are wide: only what can hardly be meant is doubted. All values here are in the user's time.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from glstm.gates import SMALLEST, WIDE, Gate, Gaussian, Periodic
from glstm.times import Span, plainly

OUTSIDE = 0.5  # spans: a moment is outside the times if it is this far before the first or after the last
REACH = 2.146  # sigmas: as far from its moment a unit is still open with k = 0.01
COVERED = 0.003  # of the span: if all units together open in less than this, they are in another unit of time
MANY = 20  # steps: of fewer, a unit may well be meant to see one or two
ALWAYS = 100  # spans: a wider unit is always open
FINER = 1 / 30  # of a step, and of the span: times that are smaller than this in both are in a larger unit
FULL = 2.0  # periods: a wider unit has k above 0.94 all the time
ONCE = 10  # spans: a longer period is no period in these times
CLOSED = 1e-3  # k of a unit that does nothing


def doubts(gate: Gate, values: Mapping[str, Tensor], times: Tensor | None, counted: bool, largest: float) -> list[str]:
    """About values (H,) and times (N,), sorted; None where they are not known.

    `counted`: nobody gave the times, they are 1, 2, ... `largest`: k at these times, of a gate that is no Gaussian.
    """
    found: list[str] = []
    if isinstance(gate, Gaussian):
        found = _about_gaussian(values, times, counted)
        largest = 1.0 if times is None else _largest(values, times)
    elif isinstance(gate, Periodic):
        found = _about_periodic(values, times)
    if not found and times is not None and largest < CLOSED:
        found.append(
            f"no unit opens at any step: the largest k is {largest:.2g} from time {_ends(times)}; give the gate values "
            "that fit these times"
        )
    return found


def about_new_times(each: Sequence[Tensor], seen: Span) -> list[str]:
    """About the times (T_n,) of sequences, for a network whose moments were learned at the times it has seen."""
    times = torch.cat([own.double() for own in each])
    reach = OUTSIDE * seen.width
    outside = (times < seen.first - reach) | (times > seen.last + reach)
    gaps = torch.cat([own.double().diff() for own in each])
    slow = len(gaps) > 0 and float(gaps.median()) < FINER * seen.step
    if not _most(outside) and not (slow and float(times.max() - times.min()) < FINER * seen.width):
        return []
    return [
        f"the times, from {_ends(times)}, are not like those from {seen.in_words} that the network has seen in "
        "training: its gates open only there, so give times in the same unit, from the same start"
    ]


def _about_gaussian(values: Mapping[str, Tensor], times: Tensor | None, counted: bool) -> list[str]:
    mu, sigma = values["mu"], values["sigma"].abs()
    if _most(sigma <= SMALLEST):
        return [f"sigma is 0 in {_share(sigma <= SMALLEST)} units, so they never open: {_usual_sigma(times)}"]
    found = _below_zero(values, "sigma", "width")
    if times is None:
        return found
    first, last = float(times[0]), float(times[-1])
    span = last - first or 1.0
    width = float(sigma.median())
    outside = (mu < first - OUTSIDE * span) | (mu > last + OUTSIDE * span)
    reach = torch.stack(((mu - REACH * sigma).min(), (mu + REACH * sigma).max()))
    reached = float(reach[1] - reach[0])
    other_scale = not 0.1 < reached / span < 10
    if _most(outside):
        found.append(
            f"mu of {_share(outside)} units, from {_ends(mu)}, is outside the times, which are from {_ends(times)}: "
            f"{_why_outside(counted, other_scale)}"
        )
    elif reached < COVERED * span or _few_inside(reach, times):
        found.append(
            f"all units together are open only from {_ends(reach)}, a small part of the times, "
            f"which are from {_ends(times)}: give mu and sigma in the unit of the times, or leave them open (None)"
        )
    if width > ALWAYS * span:
        found.append(
            f"sigma, about {width:.4g}, is more than {ALWAYS} times the span of the times, {span:.4g}: every unit is "
            f"always open, which is an LSTM at more cost; {_usual_sigma(times)}"
        )
    missed = (first <= mu) & (mu <= last) & (_nearest(mu, times) > REACH * sigma)
    if _most(missed) and not found:
        found.append(
            f"sigma, about {width:.4g}, is far below the step of the times, about {span / max(len(times) - 1, 1):.4g}: "
            f"no step is inside the window of {_share(missed)} units; {_usual_sigma(times)}"
        )
    return found


def _about_periodic(values: Mapping[str, Tensor], times: Tensor | None) -> list[str]:
    sigma, tau = values["sigma"].abs(), values["tau"].abs()
    period, width = float(tau.median()), float(sigma.median())
    usual = f"a sigma of about {WIDE * period:.3g}, {WIDE} of the period, is usual"
    if _most(tau <= SMALLEST):
        return [f"tau is 0 in {_share(tau <= SMALLEST)} units: it is a period, so give it in the unit of the times"]
    if _most(sigma <= SMALLEST):
        return [f"sigma is 0 in {_share(sigma <= SMALLEST)} units, so they never open: {usual}"]
    found = _below_zero(values, "sigma", "width") + _below_zero(values, "tau", "period")
    if times is None or len(times) < 2:
        return found
    span = float(times[-1] - times[0])
    step = span / (len(times) - 1)
    # A sigma of some spans is meant: a curriculum ends with it.
    if _most((sigma > FULL * tau) & ((sigma < span) | (sigma > ALWAYS * span))):
        found.append(
            f"sigma, about {width:.4g}, is more than {FULL:g} times the period tau, about {period:.4g}: every unit is "
            f"always open, which is an LSTM at more cost; {usual}"
        )
    if _most(tau < step):
        found.append(
            f"tau, about {period:.4g}, is below the step of the times, about {step:.4g}: several periods pass from "
            "step to step, so it is chance which steps find a unit open; give tau in the unit of the times, or leave "
            "it open (None)"
        )
    if _most(tau > ONCE * span):
        found.append(
            f"tau, about {period:.4g}, is more than {ONCE} times the span of the times, {span:.4g}: no unit comes "
            "back; give tau in the unit of the times, leave it open (None), or use Gaussian gates"
        )
    return found


def _below_zero(values: Mapping[str, Tensor], name: str, what: str) -> list[str]:
    below = values[name] < 0
    if not _most(below):
        return []
    return [
        f"{name} is below 0 in {_share(below)} units: it is a {what}, so only its magnitude counts; give it above 0"
    ]


def _few_inside(reach: Tensor, times: Tensor) -> bool:
    """Whether only one or two of many steps fall where any unit is open."""
    inside = int(((times >= reach[0]) & (times <= reach[1])).sum())
    return len(times) >= MANY and 1 <= inside <= 2


def _why_outside(counted: bool, other_scale: bool) -> str:
    if counted:
        return "if the sequence has timestamps, pass them as times=...; else leave mu open (None) or give step numbers"
    if other_scale:
        return "give mu and sigma in the unit of the times, such as both in seconds, or leave them open (None)"
    return "leave mu open (None), or give a range inside the times"


def _usual_sigma(times: Tensor | None) -> str:
    share = f"{WIDE} of the span of the times"
    if times is None:
        return f"a sigma of about {share} is usual"
    return f"a sigma of about {WIDE * float(times[-1] - times[0] or 1.0):.3g}, {share}, is usual"


def _largest(values: Mapping[str, Tensor], times: Tensor) -> float:
    width = values["sigma"].abs().clamp(min=SMALLEST)
    return float(torch.exp(-((_nearest(values["mu"], times) / width) ** 2)).max())


def _nearest(mu: Tensor, times: Tensor) -> Tensor:
    """How far each moment is from the nearest of the times."""
    after = torch.searchsorted(times, mu).clamp(max=len(times) - 1)
    return torch.minimum((mu - times[after]).abs(), (mu - times[(after - 1).clamp(min=0)]).abs())


def _most(units: Tensor) -> bool:
    return 2 * int(units.sum()) > units.numel()


def _share(units: Tensor) -> str:
    return f"{int(units.sum())} of {units.numel()}"


def _ends(values: Tensor) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{plainly(low, high - low)} to {plainly(high, high - low)}"

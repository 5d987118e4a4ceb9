"""Charts as SVG, whose colours the page's style sheet decides, and pictures of gates as small PNGs."""

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 12, 46
PICTURE = 200  # columns of a picture of gates


@dataclass(frozen=True)
class Curve:
    """y against x; `low` and `high`, where given, are the range over seeds. `marks`: points instead of a line."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    marks: bool = False


@dataclass(frozen=True)
class Axis:
    label: str
    log: bool = False
    percent: bool = False

    def form(self, value: float) -> str:
        if self.percent:
            return f"{100 * value:g} %"
        return f"{value:.0e}".replace("e-0", "e-") if value and not 0.001 <= abs(value) < 1e5 else f"{value:g}"


class Scale:
    def __init__(self, values: Sequence[float], axis: Axis, start: float, end: float):
        positive = [value for value in values if math.isfinite(value) and (value > 0 or not axis.log)]
        self.axis, self.start, self.end = axis, start, end
        self.low, self.high = (min(positive), max(positive)) if positive else (0.1, 1.0)
        if self.low == self.high:
            self.low, self.high = (self.low / 2, self.high * 2) if axis.log else (self.low - 0.5, self.high + 0.5)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.axis.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round numbers; on a log scale, too, where it spans too little for powers of ten and their multiples."""
        return (self.axis.log and self._log_ticks()) or self._linear_ticks()

    def _linear_ticks(self) -> list[float]:
        step = 10 ** math.floor(math.log10((self.high - self.low) / 2))
        step = next(step * n for n in (1, 2, 5, 10) if (self.high - self.low) / (step * n) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [round(n * step, 12) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self) -> list[float] | None:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        steps = (1,) if math.log10(self.high / self.low) > 2 else (1, 2, 5)
        found = [n * 10.0**decade for decade in decades for n in steps]
        within = [value for value in found if self.low <= value <= self.high]
        return within if len(within) > 1 else None


def chart(curves: Sequence[Curve], x: Axis, y: Axis, title: str) -> str:
    across = Scale([value for curve in curves for value in curve.x], x, LEFT, WIDTH - RIGHT)
    heights = [value for curve in curves for part in (curve.y, curve.low, curve.high) for value in part or ()]
    up = Scale(heights, y, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">',
        *(_tick(LEFT, WIDTH - RIGHT, up(value), y.form(value)) for value in up.ticks()),
        *(_tick_below(across(value), x.form(value)) for value in across.ticks()),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x.label)}</text>',
        f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y.label)}</text>',
    ]
    for number, curve in enumerate(curves):
        colour = f"c{number % 8}"
        if curve.low and curve.high:
            edge = [*zip(curve.x, curve.high), *reversed([*zip(curve.x, curve.low)])]
            parts.append(f'<polygon class="band {colour}" points="{_points(edge, across, up)}"/>')
        if curve.marks:
            parts += [
                f'<circle class="mark {colour}" cx="{across(a):.1f}" cy="{up(b):.1f}" r="4"/>'
                for a, b in zip(curve.x, curve.y)
            ]
        else:
            parts.append(f'<polyline class="line {colour}" points="{_points([*zip(curve.x, curve.y)], across, up)}"/>')
    legend = "".join(f'<li class="c{n % 8}">{escape(curve.name)}</li>' for n, curve in enumerate(curves))
    return "".join(parts) + f'</svg><ul class="legend">{legend}</ul>'


def _tick(left: float, right: float, y: float, text: str) -> str:
    line = f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _tick_below(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>'


def _points(points: list[tuple[float, float]], across: Scale, up: Scale) -> str:
    return " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points if math.isfinite(y))


def gates(values: Mapping[str, Sequence[float]], steps: int, title: str) -> str:
    """How open each unit is at each step, units by their moment: black is closed. `values` are the gates' own."""
    opens = {"mu": _gaussian, "s": _phased}
    moment = next(name for name in opens if name in values)
    units = [dict(zip(values, unit)) for unit in zip(*values.values())]
    units.sort(key=lambda unit: unit[moment], reverse=True)
    times = [1 + (steps - 1) * column / (PICTURE - 1) for column in range(PICTURE)]
    rows = [bytes(round(255 * opens[moment](t, **unit)) for t in times) for unit in units]
    picture = b64encode(_png(rows)).decode()
    return f'<img class="gates" alt="{escape(title, quote=True)}" src="data:image/png;base64,{picture}">'


def _gaussian(t: float, mu: float, sigma: float) -> float:
    return math.exp(-(((t - mu) / max(abs(sigma), 1e-6)) ** 2))


def _phased(t: float, tau: float, s: float, r: float) -> float:
    period, ratio = max(abs(tau), 1e-6), max(abs(r), 1e-6)
    phase = (t - s) % period / period
    return min(1.0, max(0.0, min(2 * phase / ratio, 2 - 2 * phase / ratio)))


def _png(rows: list[bytes]) -> bytes:
    """Shades of grey, a byte each."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")

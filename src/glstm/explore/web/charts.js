// Curves as SVG, drawn anew for the width that there is, so that text has its size on every screen.

import { make, precise } from "./dom.js";

const MARGIN = { left: 52, right: 12, top: 10, bottom: 26 };
const HEIGHT = 190;
const FEW = 30; // from the smallest to the largest: more than that is drawn with a logarithm

// A chart: { title, label, series: [{ name, colour, x, y, dots }], xTicks, yFormat, cursor }. Points without a value
// are left out.
export class Chart {
  constructor(options) {
    this.options = options;
    this.element = make("figure", { class: "chart" }, make("figcaption", {}, options.title));
    this.place = make("div", {});
    this.element.append(this.place);
    this.width = 0;
  }

  draw() {
    const width = Math.round(this.place.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    const { series, label } = this.options;
    const known = series.flatMap(({ x, y }) => x.map((at, n) => [at, y[n]])).filter(([, y]) => Number.isFinite(y));
    const ys = known.map(([, y]) => y);
    const [least, most] = [Math.min(...ys), Math.max(...ys)];
    const log = least > 0 && most / least > FEW;
    const ticks = log ? powers(least, most) : even(Math.min(0, least), most);
    const [low, high] = log ? [Math.min(least, ticks[0]), Math.max(most, ticks.at(-1))] : [ticks[0], ticks.at(-1)];
    const scale = log ? Math.log10 : (value) => value;
    const xs = this.options.xRange ?? [Math.min(...known.map(([x]) => x)), Math.max(...known.map(([x]) => x))];
    const inner = { w: width - MARGIN.left - MARGIN.right, h: HEIGHT - MARGIN.top - MARGIN.bottom };
    this.x = (value) => MARGIN.left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * inner.w;
    this.y = (value) => MARGIN.top + inner.h * (1 - (scale(value) - scale(low)) / (scale(high) - scale(low) || 1));
    const svg = make("svg", {
      viewBox: `0 0 ${width} ${HEIGHT}`,
      width,
      height: HEIGHT,
      role: "img",
      "aria-label": label,
    });
    const format = this.options.yFormat ?? precise;
    for (const tick of ticks) {
      const y = this.y(tick);
      svg.append(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
      svg.append(make("text", { x: MARGIN.left - 7, y: y + 4, "text-anchor": "end" }, format(tick)));
    }
    const places =
      this.options.xTicks ??
      even(...xs, 5)
        .filter((one) => Number.isInteger(one) && one >= xs[0] && one <= xs[1])
        .map((one) => [one, precise(one)]);
    let free = 0;
    for (const [at, text] of places) {
      const half = 3.6 * text.length;
      if (this.x(at) - half < free) continue;
      svg.append(make("text", { x: this.x(at), y: HEIGHT - 8, "text-anchor": "middle" }, text));
      free = this.x(at) + half + 8;
    }
    for (const one of series) svg.append(this.line(one));
    this.cursor = make("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    this.marks = series.map(({ colour }) => make("circle", { class: colour, r: 4.5 }));
    svg.append(...(this.options.cursor ? [this.cursor, ...this.marks] : []));
    this.place.replaceChildren(svg);
    if (this.at !== undefined) this.mark(this.at);
  }

  line({ colour, x, y, dots }) {
    const points = x.map((at, n) => [at, y[n]]).filter(([, value]) => Number.isFinite(value));
    const path = points.map(([at, value]) => `${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`).join("L");
    const group = make("g", { class: colour }, make("path", { d: `M${path}`, class: dots ? "thin" : "" }));
    if (dots)
      group.append(...points.map(([at, value]) => make("circle", { cx: this.x(at), cy: this.y(value), r: 3.5 })));
    return group;
  }

  // Moves the cursor; a mark is on each series that has a value there.
  mark(at) {
    this.at = at;
    if (!this.x || !this.options.cursor) return;
    const x = this.x(at);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.options.series.forEach(({ x: all, y }, n) => {
      const found = all.indexOf(at);
      const value = found < 0 ? NaN : y[found];
      this.marks[n].setAttribute("visibility", Number.isFinite(value) ? "visible" : "hidden");
      if (!Number.isFinite(value)) return;
      this.marks[n].setAttribute("cx", x);
      this.marks[n].setAttribute("cy", this.y(value));
    });
  }
}

function powers(least, most) {
  const [from, to] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most))];
  const step = Math.ceil((to - from) / 5);
  const found = [];
  for (let power = from; power <= to; power += step) found.push(10 ** power);
  return found;
}

function even(least, most, count = 4) {
  const rough = (most - least || Math.abs(most) || 1) / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((part) => part * size).find((one) => one >= rough * 0.999);
  const found = [];
  for (let n = Math.floor(least / step); found.length < 12; n++) {
    found.push(Number((n * step).toPrecision(12)));
    if (n * step >= most) break;
  }
  return found;
}

export function legend(list, runs) {
  list.replaceChildren(...runs.map(({ name, colour }) => make("li", { class: colour }, make("span", {}, name))));
  list.hidden = runs.length < 2;
}

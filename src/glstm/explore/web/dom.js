// Elements, canvases, colours and numbers: what all parts of the page draw with.

export function make(tag, attributes = {}, ...children) {
  const element =
    tag in SVG_TAGS ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const SVG_TAGS = { svg: 1, path: 1, line: 1, text: 1, circle: 1, g: 1, rect: 1 };

// A canvas at the device's own resolution, to be drawn on in CSS pixels.
export function surface(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

let colours = {};

// The style sheet's colours by name, such as "ink" or "c0", for canvases.
export function colour(name) {
  colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return colours[name];
}

export function forgetColours() {
  colours = {};
}

export function channels(text) {
  const digits = text.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

export const runColour = (number) => `c${[0, 2, 3, 4][number % 4]}`;

// From the first to the last of some stops, by a share.
export function blend(stops, share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
  const [low, high] = [stops[Math.floor(place)], stops[Math.floor(place) + 1]];
  return low.map((value, at) => value + (high[at] - value) * (place % 1));
}

export const percent = (share) => `${precise(100 * share)} %`;

export function precise(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  return size >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(size >= 10 ? 3 : 2)));
}

export function operations(count) {
  if (count < 1e4) return whole(count);
  const [size, letter] = count < 1e6 ? [1e3, "k"] : count < 1e9 ? [1e6, "M"] : [1e9, "G"];
  const digits = count / size < 10 ? 2 : count / size < 100 ? 1 : 0;
  return `${Number((count / size).toFixed(digits))} ${letter}`;
}

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const whole = (count) => GROUPED.format(count);

export const plural = (count, what) => `${whole(count)} ${what}${count === 1 ? "" : "s"}`;

// a, b and c
export function listed(words) {
  return [words.slice(0, -1).join(", "), words[words.length - 1]].filter(Boolean).join(" and ");
}

export function threshold(value) {
  const short = Number(value.toPrecision(3));
  return value && value < 1e-4 ? short.toExponential() : String(short);
}

// The time of a step, in words: its number, or its time if steps have times.
export function moment(run, step, times = run.times) {
  if (!times) return whole(step + 1);
  const span = times[times.length - 1] - times[0] || 1;
  const text = String(Number(times[step].toFixed(Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(span)))))));
  return run.task?.time_unit ? `${text} ${run.task.time_unit}` : text;
}

export const timeWord = (run) => (run.times || run.task?.own_times ? "time" : "step");

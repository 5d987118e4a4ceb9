// Units by moment and time: how open each is, the same for how many are open, and one unit's window.

import { blend, channels, colour, surface } from "./dom.js";
import { opennessAt } from "./gate.js";

const BITS = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1 ? [0, 8, 16, 24] : [24, 16, 8, 0];

// One cell a device pixel at most, however many units and steps there are: each shows the largest level in it.
export class GatePicture {
  constructor(canvas, thresholds) {
    Object.assign(this, { canvas, thresholds, cells: null, image: document.createElement("canvas"), painted: -1 });
  }

  show(levels, units, steps) {
    Object.assign(this, { levels, units, steps, cells: null });
  }

  // Colours have changed.
  forget() {
    this.painted = -1;
  }

  fit(width, height) {
    const scale = window.devicePixelRatio || 1;
    const columns = Math.min(this.steps, Math.max(1, Math.round(width * scale)));
    const rows = Math.min(this.units, Math.max(1, Math.round(height * scale)));
    if (this.cells && this.columns === columns && this.rows === rows) return;
    Object.assign(this, { columns, rows, cells: new Uint8Array(columns * rows), painted: -1 });
    Object.assign(this.image, { width: columns, height: rows });
    this.context = this.image.getContext("2d");
    this.pixels = this.context.createImageData(columns, rows);
    this.words = new Uint32Array(this.pixels.data.buffer);
    const columnOf = Int32Array.from({ length: this.steps }, (_, step) => Math.floor((step * columns) / this.steps));
    for (let unit = 0; unit < this.units; unit++) {
      const row = Math.floor((unit * rows) / this.units) * columns;
      const from = unit * this.steps;
      for (let step = 0; step < this.steps; step++) {
        const at = row + columnOf[step];
        if (this.levels[from + step] > this.cells[at]) this.cells[at] = this.levels[from + step];
      }
    }
  }

  // Level by level: a colour that says k, or where the threshold closes it, a shadow of what would be.
  table(position) {
    const open = [0, 1, 2, 3].map((at) => channels(colour(`k${at}`)));
    const shadow = [channels(colour("wash")), channels(colour("shadow"))];
    return Uint32Array.from({ length: 256 }, (_, level) => {
      const k = this.opennessOf(level);
      const parts = level > position ? blend(open, k ** 0.7) : blend(shadow, level ? 0.25 + 0.75 * k ** 0.4 : 0);
      return [...parts, 255].reduce((word, part, at) => (word | (Math.round(part) << BITS[at])) >>> 0, 0);
    });
  }

  // A k that has this level: the one in the middle.
  opennessOf(level) {
    if (level === 0) return 0;
    const above = this.thresholds[level] ?? 1;
    return level >= this.thresholds.length ? 1 : (this.thresholds[level - 1] + above) / 2;
  }

  draw(position, { cursor, row }) {
    const { context, width, height } = surface(this.canvas);
    this.fit(width, height);
    if (this.painted !== position) {
      const words = this.table(position);
      for (let at = 0; at < this.cells.length; at++) this.words[at] = words[this.cells[at]];
      this.context.putImageData(this.pixels, 0, 0);
      this.painted = position;
      this.canvas.dataset.cells = this.cells.length;
    }
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, 0, 0, width, height);
    const tall = height / this.units;
    context.strokeStyle = colour("ink");
    context.lineWidth = 1.25;
    const thick = Math.max(tall, 4);
    context.strokeRect(0.5, Math.max(0.5, (row + 0.5) * tall - thick / 2), width - 1, Math.min(thick, height - 1));
    drawCursor(context, width, height, cursor);
  }
}

export function drawCursor(context, width, height, share) {
  if (share === null) return;
  context.fillStyle = colour("c2");
  context.fillRect(Math.min(width - 2, Math.max(0, share * width - 1)), 0, 2, height);
}

// How many units are open at each step, of all that there are.
export function drawCounts(canvas, schedule, position, cursor) {
  const { context, width, height } = surface(canvas);
  const { steps, now } = schedule;
  const columns = Math.max(1, Math.min(steps, Math.round(width)));
  const most = new Float64Array(columns);
  for (let step = 0; step < steps; step++) {
    const at = Math.floor((step * columns) / steps);
    most[at] = Math.max(most[at], now[position * steps + step]);
  }
  const top = Math.max(...most, 1);
  context.fillStyle = colour("k1");
  context.beginPath();
  context.moveTo(0, height);
  most.forEach((count, at) => {
    const y = height - (count / top) * (height - 3);
    context.lineTo((at * width) / columns, y);
    context.lineTo(((at + 1) * width) / columns, y);
  });
  context.lineTo(width, height);
  context.fill();
  drawCursor(context, width, height, cursor);
  return Math.max(...most);
}

// k of one unit over time, with the part that the threshold leaves open filled.
export function drawWindow(canvas, { place, row, steps, times, limit, position, cursor }) {
  const { context, width, height } = surface(canvas);
  const columns = Math.max(1, Math.min(steps, Math.round(width * 2)));
  const points = [];
  for (let column = 0; column < columns; column++) {
    // Of several steps in a column the most open one is drawn.
    const [from, to] = [Math.floor((column * steps) / columns), Math.floor(((column + 1) * steps) / columns)];
    let [k, open] = [0, false];
    for (let step = from; step < to; step++) {
      k = Math.max(k, opennessAt(place, place, row, step, steps, times[step]));
      open ||= place.levels[row * steps + step] > position;
    }
    points.push({ x: ((column + 0.5) * width) / columns, y: height - 2 - k * (height - 6), open });
  }
  context.fillStyle = colour("k1");
  context.globalAlpha = 0.45;
  context.beginPath();
  points.forEach(({ x, y, open }, at) => {
    if (!open) return;
    if (!points[at - 1]?.open) context.moveTo(x, height);
    context.lineTo(x, y);
    if (!points[at + 1]?.open) context.lineTo(x, height);
  });
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = colour("k2");
  context.lineWidth = 1.75;
  context.beginPath();
  for (const { x, y } of points) context.lineTo(x, y);
  context.stroke();
  const y = height - 2 - limit * (height - 6);
  context.strokeStyle = colour("soft");
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
  context.setLineDash([]);
  drawCursor(context, width, height, cursor);
}

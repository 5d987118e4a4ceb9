// A sample as the network sees it, and the units as they open while it is read.

import { blend, channels, colour, surface } from "./dom.js";
import { drawCursor } from "./picture.js";

const LARGEST_LAMP = 30;
const TALLEST_LAMPS = 230;

// An image whose pixels are the steps: what is read is bright, what is not is dim.
export function drawImage(canvas, run, sample, step) {
  const { context, width } = surface(canvas);
  const { side, places } = run.task.image;
  const inputs = sample.x.length / sample.steps;
  const pixels = document.createElement("canvas");
  Object.assign(pixels, { width: side, height: side });
  const brush = pixels.getContext("2d");
  const image = brush.createImageData(side, side);
  for (let n = 0; n < sample.steps; n++) {
    const shown = n <= step ? 1 : 0.28;
    for (let part = 0; part < 3; part++) {
      const value = sample.x[n * inputs + (inputs === 3 ? part : 0)];
      image.data[4 * places[n] + part] = 16 + shown * (24 + 215 * value);
    }
    image.data[4 * places[n] + 3] = 255;
  }
  brush.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(pixels, 0, 0, width, width);
  const cell = width / side;
  context.strokeStyle = colour("c2");
  context.lineWidth = 2;
  context.strokeRect((places[step] % side) * cell, Math.floor(places[step] / side) * cell, cell, cell);
}

// Each input as a line of its own, on the time axis of the picture of the gates: `share` says where on it a step is.
export function drawLines(canvas, sample, step, share) {
  const { context, width, height } = surface(canvas);
  const inputs = sample.x.length / sample.steps;
  const lane = height / inputs;
  const now = share(step) * width;
  for (let input = 0; input < inputs; input++) {
    const points = pointsOf(sample, input, share, width);
    const [low, high] = [Math.min(...points.map((one) => one.low)), Math.max(...points.map((one) => one.high))];
    const y = (value) => (input + 1) * lane - 4 - ((value - low) / (high - low || 1)) * (lane - 8);
    for (const isRead of [true, false]) {
      context.save();
      context.beginPath();
      context.rect(isRead ? 0 : now, 0, isRead ? now : width - now, height);
      context.clip();
      context.globalAlpha = isRead ? 1 : 0.3;
      context.strokeStyle = colour(`c${[0, 5, 3, 4, 6, 7, 1][input % 7]}`);
      context.lineWidth = 1.25;
      context.beginPath();
      for (const point of points) {
        context.lineTo(point.x, y(point.low));
        if (point.high !== point.low) context.lineTo(point.x, y(point.high));
      }
      context.stroke();
      context.restore();
    }
  }
  drawCursor(context, width, height, share(step));
}

// The smallest and the largest value of an input in each pixel's column. Missing values are left out.
function pointsOf(sample, input, share, width) {
  const inputs = sample.x.length / sample.steps;
  const columns = sample.steps > width ? width : Infinity;
  const points = [];
  let last = -1;
  for (let n = 0; n < sample.steps; n++) {
    const value = sample.x[n * inputs + input];
    if (Number.isNaN(value)) continue;
    const column = columns === Infinity ? n : Math.floor(share(n) * columns);
    if (column !== last) points.push({ x: share(n) * width, low: value, high: value });
    const point = points[points.length - 1];
    point.low = Math.min(point.low, value);
    point.high = Math.max(point.high, value);
    last = column;
  }
  return points;
}

// A lamp a unit, by moment: it lights up while the unit is open, and keeps a tint of the h that it holds.
export function drawLamps(canvas, reading, at, step) {
  const units = reading.run.layer.units;
  const columns = lampColumns(units, canvas.clientWidth);
  const size = Math.min(LARGEST_LAMP, canvas.clientWidth / columns);
  canvas.style.height = `${Math.ceil(units / columns) * size}px`;
  const { context } = surface(canvas);
  const gap = size > 8 ? 2 : size > 4 ? 1 : 0;
  const [wash, lit] = [channels(colour("lamp")), channels(colour("lit"))];
  const signs = [channels(colour("c2")), channels(colour("c0"))];
  const states = reading.states[at];
  let open = 0;
  for (let row = 0; row < units; row++) {
    const h = states[step * units + reading.run.places[at].order[row]];
    const tint = blend([wash, signs[h > 0 ? 1 : 0]], 0.65 * Math.min(1, Math.abs(h)));
    const isOpen = reading.isOpen(at, row, step);
    const shown = isOpen ? blend([tint, lit], 0.15 + 0.85 * reading.openness(at, row, step)) : tint;
    context.fillStyle = `rgb(${shown.map(Math.round).join(" ")})`;
    const [x, y] = [(row % columns) * size, Math.floor(row / columns) * size];
    context.beginPath();
    context.roundRect(x + gap, y + gap, size - 2 * gap, size - 2 * gap, size / 5);
    context.fill();
    if (isOpen && size > 8) {
      context.strokeStyle = colour("lit-edge");
      context.lineWidth = 1.5;
      context.stroke();
    }
    open += isOpen;
  }
  return open;
}

function lampColumns(units, width) {
  let columns = Math.ceil(width / LARGEST_LAMP);
  while (Math.ceil(units / columns) * (width / columns) > TALLEST_LAMPS) columns++;
  return columns;
}

// How the answer forms over the steps, so far as they are read: shares of all classes, of which `strong` is the true
// one; or with `strong` null, values, each in a lane of its own beside its targets.
export function drawTrace(canvas, { points, targets, step, steps, strong }) {
  const { context, width, height } = surface(canvas);
  const x = (at) => ((at + 0.5) / steps) * width;
  const outputs = points[0].values.length;
  for (let output = 0; output < outputs; output++) {
    const values = points.map((one) => one.values[output]);
    const own = [...values, ...(targets?.[output] ?? [])].filter(Number.isFinite);
    const [low, high] = strong === null ? [Math.min(...own), Math.max(...own)] : [0, 1];
    const [lane, tall] = strong === null ? [output, height / outputs] : [0, height];
    const y = (value) => (lane + 1) * tall - 4 - ((value - low) / (high - low || 1)) * (tall - 8);
    if (targets) drawTarget(context, targets[output], x, y, width);
    const main = strong === null || output === strong;
    context.strokeStyle = colour(strong === null ? "c0" : main ? "c3" : "c1");
    context.lineWidth = main ? 2 : 1;
    for (const [until, alpha] of [
      [steps, 0.18],
      [step, main ? 1 : 0.45],
    ]) {
      context.globalAlpha = alpha;
      context.beginPath();
      points.forEach(({ at }, n) => at <= until && context.lineTo(x(at), y(values[n])));
      context.stroke();
    }
    context.globalAlpha = 1;
  }
  drawCursor(context, width, height, (step + 0.5) / steps);
}

// One target for all steps, or one a step, of which some may be missing.
function drawTarget(context, target, x, y, width) {
  context.strokeStyle = colour("soft");
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.beginPath();
  if (target.length === 1) {
    context.moveTo(0, y(target[0]));
    context.lineTo(width, y(target[0]));
  } else target.forEach((value, at) => Number.isFinite(value) && context.lineTo(x(at), y(value)));
  context.stroke();
  context.setLineDash([]);
}

// A sample as the network sees it, and the units as they open while it is read.

import { blend, channels, colour, runColour, surface } from "./dom.js";
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

// Each input as a line of its own, as wide as the picture of the gates; `part` is how much of that this sample takes.
export function drawLines(canvas, sample, step, part) {
  const { context, width: whole, height } = surface(canvas);
  const width = whole * part;
  const inputs = sample.x.length / sample.steps;
  const lane = height / inputs;
  for (let input = 0; input < inputs; input++) {
    const { lows, highs } = ranges(sample, input, Math.max(1, Math.min(sample.steps, Math.round(width))));
    const [low, high] = [Math.min(...lows), Math.max(...highs)];
    const y = (value) => (input + 1) * lane - 4 - ((value - low) / (high - low || 1)) * (lane - 8);
    for (const [from, to, alpha] of [
      [0, (step + 1) / sample.steps, 1],
      [(step + 1) / sample.steps, 1, 0.3],
    ]) {
      context.save();
      context.beginPath();
      context.rect(from * width, 0, (to - from) * width, height);
      context.clip();
      context.globalAlpha = alpha;
      context.strokeStyle = colour(`c${[0, 5, 3, 4, 6, 7, 1][input % 7]}`);
      context.lineWidth = 1.25;
      context.beginPath();
      lows.forEach((value, at) => {
        if (!Number.isFinite(value)) return;
        const x = ((at + 0.5) * width) / lows.length;
        context.lineTo(x, y(value));
        if (highs[at] !== value) context.lineTo(x, y(highs[at]));
      });
      context.stroke();
      context.restore();
    }
  }
  drawCursor(context, whole, height, ((step + 0.5) / sample.steps) * part);
}

// The smallest and the largest value in each column. Missing values are left out.
function ranges(sample, input, columns) {
  const inputs = sample.x.length / sample.steps;
  const lows = new Array(columns).fill(Infinity);
  const highs = new Array(columns).fill(-Infinity);
  for (let n = 0; n < sample.steps; n++) {
    const value = sample.x[n * inputs + input];
    if (Number.isNaN(value)) continue;
    const at = Math.floor((n * columns) / sample.steps);
    lows[at] = Math.min(lows[at], value);
    highs[at] = Math.max(highs[at], value);
  }
  return { lows, highs };
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

// How the answer forms over the steps: a line an output, so far as it is read.
export function drawTrace(canvas, { values, targets, step, steps, part, strong, number }) {
  const { context, width: whole, height } = surface(canvas);
  const width = whole * part;
  const all = [...values.flatMap((one) => one.values), ...(targets ?? []).flat()].filter(Number.isFinite);
  const [low, high] = strong === null ? [Math.min(...all), Math.max(...all)] : [0, 1];
  const y = (value) => height - 4 - ((value - low) / (high - low || 1)) * (height - 8);
  const outputs = values[0].values.length;
  context.lineWidth = 1;
  context.setLineDash([4, 3]);
  context.strokeStyle = colour("soft");
  for (const target of targets ?? []) {
    context.beginPath();
    target.forEach(
      (value, at) =>
        Number.isFinite(value) && context.lineTo((target.length > 1 ? at / (target.length - 1) : at) * width, y(value)),
    );
    if (target.length === 1) context.lineTo(width, y(target[0]));
    context.stroke();
  }
  context.setLineDash([]);
  for (let output = 0; output < outputs; output++) {
    const main = strong === null || output === strong;
    context.strokeStyle = main ? colour(strong === null ? runColour(number + output) : "c3") : colour("c1");
    for (const [isRead, alpha] of [
      [false, 0.18],
      [true, main ? 1 : 0.45],
    ]) {
      context.globalAlpha = alpha;
      context.lineWidth = main ? 2 : 1;
      context.beginPath();
      for (const { at, values: row } of values)
        if (!isRead || at <= step) context.lineTo(((at + 0.5) / steps) * width, y(row[output]));
      context.stroke();
    }
  }
  context.globalAlpha = 1;
  drawCursor(context, whole, height, ((step + 0.5) / steps) * part);
}

// The network itself: a gated LSTM over a sample, then its head. States are float32, sums float64.

import { opennessAt, relativeTimes } from "./gate.js";
import { outputsOf, sigmoid } from "./head.js";

// One reading of a sample at one position of the slider. `advance` computes for a while, so that a long sequence does
// not stop the page; a closed unit costs nothing, and the contributions of units that do not change are kept.
export class Reading {
  // `before`: a reading that is no longer needed, whose memory is taken if it is as large.
  constructor(run, sample, position, before = null) {
    Object.assign(this, { run, sample, position });
    this.steps = sample.steps;
    this.times = relativeTimes(run, sample.times ?? run.times, this.steps);
    this.tables = run.places.map((place, at) => this.table(place, at));
    const size = this.steps * run.layer.units;
    this.states = // h after every step
      before?.states[0].length === size ? before.states : run.places.map(() => new Float32Array(size));
    this.place = 0;
    this.taken = 0; // steps of this place that are done, in its own direction
    this.units = null;
    this.pooled = null;
    this.outputs = new Map();
  }

  // The levels of this sample's steps: its own, or the first of those that all share.
  table(place, at) {
    const own = this.sample.tables?.[at];
    return own ? { ...own, stride: this.steps } : { levels: place.levels, k: place.k, stride: this.run.steps };
  }

  get done() {
    return this.place === this.run.places.length;
  }

  get progress() {
    return this.done ? 1 : (this.place + this.taken / this.steps) / this.run.places.length;
  }

  advance(milliseconds) {
    const end = performance.now() + milliseconds;
    while (!this.done && performance.now() < end) {
      this.units ??= new Units(this, this.place);
      for (let some = 0; some < 16 && this.taken < this.steps; some++) this.units.step(this.taken++);
      if (this.taken < this.steps) continue;
      this.place++;
      this.taken = 0;
      this.units = null;
    }
    return this.done;
  }

  // k of a unit, by its row, at a step.
  openness(at, row, step) {
    const table = this.tables[at];
    return opennessAt(this.run.places[at], table, row, step, table.stride, this.times[step]);
  }

  isOpen(at, row, step) {
    const table = this.tables[at];
    return table.levels[row * table.stride + step] > this.position;
  }

  // What a place reads at a step: the sample, or all directions of the layer below.
  input(at, step, into) {
    const { directions, units } = this.run.layer;
    const first = at - (at % directions);
    if (first === 0) {
      const x = this.sample.read ?? this.sample.x;
      into.set(x.subarray(step * into.length, (step + 1) * into.length));
      return;
    }
    for (let way = 0; way < directions; way++) {
      const below = this.states[first - directions + way];
      into.set(below.subarray(step * units, (step + 1) * units), way * units);
    }
  }

  // What the network answers after so many steps; of two directions, after so many from each end.
  answer(step) {
    if (!this.outputs.has(step)) this.outputs.set(step, outputsOf(this.run.network.head, this.read(step)));
    return this.outputs.get(step);
  }

  read(step) {
    const { directions, units } = this.run.layer;
    const { reads } = this.run.network;
    const top = this.states.slice(-directions);
    if (reads === "mean" || reads === "max") {
      this.pooled ??= pooled(top, this.steps, units, reads);
      return this.pooled.subarray(step * units * directions, (step + 1) * units * directions);
    }
    const row = new Float32Array(units * directions);
    top.forEach((states, way) => {
      const at = way && reads === "last" ? this.steps - 1 - step : step;
      row.set(states.subarray(at * units, (at + 1) * units), way * units);
    });
    return row;
  }
}

// The mean or the maximum of all steps so far, after every step.
function pooled(top, steps, units, reads) {
  const width = units * top.length;
  const made = new Float32Array(steps * width);
  const sums = new Float64Array(width).fill(reads === "max" ? -Infinity : 0);
  for (let step = 0; step < steps; step++) {
    for (let at = 0; at < width; at++) {
      const h = top[Math.floor(at / units)][step * units + (at % units)];
      sums[at] = reads === "max" ? Math.max(sums[at], h) : sums[at] + h;
      made[step * width + at] = reads === "max" ? sums[at] : sums[at] / (step + 1);
    }
  }
  return made;
}

// The units of one layer and direction, while they take their steps.
class Units {
  constructor(reading, at) {
    const { run } = reading;
    Object.assign(this, { reading, at, weights: run.network.layers[at], place: run.places[at] });
    const units = run.layer.units;
    this.count = units;
    this.candidate = run.network.candidate === "sigmoid" ? sigmoid : Math.tanh;
    this.x = new Float32Array(this.place.inputs);
    this.h = new Float32Array(units);
    this.c = new Float32Array(units);
    this.sums = new Float64Array(4 * units); // of contributions of units that did not change in the step before
    this.wasOpen = new Uint8Array(units);
    this.everOpen = new Uint8Array(units);
    this.total = new Float64Array(4);
    this.changed = new Int32Array(0); // units that were open at the step before
    this.left = []; // units that closed at that step, and [unit, h before] of those that opened at it
    this.entered = [];
  }

  step(taken) {
    const { reading, at, place, h } = this;
    const step = place.backwards ? reading.steps - 1 - taken : taken;
    const rows = [];
    for (let row = 0; row < this.count; row++) if (reading.isOpen(at, row, step)) rows.push(row);
    if (rows.length) reading.input(at, step, this.x);
    const made = rows.map((row) => this.made(place.order[row], reading.openness(at, row, step)));
    const units = Int32Array.from(rows, (row) => place.order[row]);
    this.settle(units);
    made.forEach(([newH, newC], n) => {
      h[units[n]] = newH;
      this.c[units[n]] = newC;
    });
    reading.states[at].set(h, step * this.count);
  }

  // h and c of an open unit after the step, from all h before it.
  made(unit, k) {
    const { count, weights, x, h, c, sums } = this;
    if (this.wasOpen[unit]) this.update(unit);
    else this.sumUp(unit);
    const { w_ih, w_hh, bias } = weights;
    const { changed, total } = this;
    for (let gate = 0; gate < 4; gate++) {
      const row = gate * count + unit;
      let sum = bias[row] + sums[4 * unit + gate];
      for (let from = 0, w = row * x.length; from < x.length; from++, w++) sum += w_ih[w] * x[from];
      for (let n = 0, w = row * count; n < changed.length; n++) sum += w_hh[w + changed[n]] * h[changed[n]];
      total[gate] = sum;
    }
    const newC = sigmoid(total[1]) * c[unit] + sigmoid(total[0]) * this.candidate(total[2]);
    const newH = sigmoid(total[3]) * Math.tanh(newC);
    return [h[unit] + k * (newH - h[unit]), c[unit] + k * (newC - c[unit])];
  }

  // A unit that opens: the contributions of all units that were ever open, except those that changed last.
  sumUp(unit) {
    const { count, weights, h, sums } = this;
    for (let gate = 0; gate < 4; gate++) {
      let sum = 0;
      const row = (gate * count + unit) * count;
      for (let other = 0; other < count; other++) {
        if (this.everOpen[other] && !this.wasOpen[other]) sum += weights.w_hh[row + other] * h[other];
      }
      sums[4 * unit + gate] = sum;
    }
  }

  // A unit that stays open: which units are frozen has changed.
  update(unit) {
    const { count, weights, h, sums } = this;
    for (let gate = 0; gate < 4; gate++) {
      const row = (gate * count + unit) * count;
      for (const other of this.left) sums[4 * unit + gate] += weights.w_hh[row + other] * h[other];
      for (const [other, before] of this.entered) sums[4 * unit + gate] -= weights.w_hh[row + other] * before;
    }
  }

  // After a step at which these units were open, before their new h is stored.
  settle(units) {
    const isOpen = new Uint8Array(this.count);
    for (const unit of units) isOpen[unit] = 1;
    this.left = this.changed.filter((unit) => !isOpen[unit]);
    this.entered = Array.from(
      units.filter((unit) => !this.wasOpen[unit]),
      (unit) => [unit, this.h[unit]],
    );
    for (const unit of units) this.everOpen[unit] = 1;
    this.wasOpen = isOpen;
    this.changed = units;
  }
}

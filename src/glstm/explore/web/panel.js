// One network: its figures, its gates, one unit, and the sample that it reads.

import { Answer } from "./answer.js";
import { colour, make, moment, operations, percent, plural, precise, threshold, timeWord, whole } from "./dom.js";
import { opennessAt, relativeTimes, windowsOf } from "./gate.js";
import { Reading } from "./network.js";
import { GatePicture, drawCounts, drawWindow } from "./picture.js";
import { drawImage, drawLamps, drawLines } from "./sample.js";
import { Costs } from "./schedule.js";

// Milliseconds for which a reading may hold up a frame. One that is not done at first waits until the slider rests.
const [AT_FIRST, LATER, REST] = [6, 20, 150];

export class Panel {
  constructor(run, number, thresholds, start) {
    Object.assign(this, { run, number, thresholds, at: 0, row: 0, reading: null });
    this.gated = run.layer !== null;
    this.costs = this.gated ? new Costs(run, thresholds.length) : null;
    this.times = this.gated ? relativeTimes(run, run.times, run.steps) : null;
    this.row = this.gated ? firstShown(run, start) : 0;
    this.element = make("section", { class: "run card", "aria-labelledby": `run${number}` });
    this.element.append(make("h2", { id: `run${number}` }, run.name), make("p", { class: "soft about" }, about(run)));
    this.figures = make("dl", { class: "figures" });
    this.element.append(this.figures);
    if (run.no_network) this.element.append(make("p", { class: "note" }, run.no_network));
    this.parts = make("div", { class: this.gated && run.samples.length ? "parts both" : "parts" });
    this.element.append(this.parts);
    if (this.gated) this.addGates();
    this.addSample();
  }

  addGates() {
    const { run, number } = this;
    const canvas = make("canvas", { class: "gates", role: "img" });
    canvas.style.height = `${Math.min(380, Math.max(150, run.layer.units * 6))}px`;
    this.picture = new GatePicture(canvas, this.thresholds);
    this.counts = make("canvas", { class: "counts", role: "img" });
    const head = make("div", { class: "head" }, make("h3", {}, "Units by moment, over time"));
    if (run.places.length > 1) {
      const options = run.places.map((place, at) => make("option", { value: at }, place.name));
      const choice = make("select", { "aria-label": `Which layer of ${run.name}`, autocomplete: "off" }, ...options);
      choice.addEventListener("change", () => this.choose(Number(choice.value)));
      head.append(choice);
    }
    const key = make(
      "p",
      { class: "key soft" },
      make("span", {}, "closed", make("i", { class: "ramp" }), "open (k = 1)"),
      make("span", {}, make("i", { class: "shade" }), "closed by the threshold"),
    );
    this.countsText = make("p", { class: "soft axis-text" });
    const ends = make(
      "p",
      { class: "axis soft" },
      ...[0, 0.5, 1].map((share) =>
        make("span", {}, `${share ? "" : `${timeWord(run)} `}${moment(run, Math.round(share * (run.steps - 1)))}`),
      ),
    );
    this.unit = make("input", {
      type: "range",
      id: `unit${number}`,
      min: 0,
      max: run.layer.units - 1,
      step: 1,
      autocomplete: "off",
    });
    this.unit.value = this.row;
    this.unit.addEventListener("input", () => this.select(Number(this.unit.value)));
    this.unitText = make("p", { class: "unit-text" });
    this.window = make("canvas", { class: "window", role: "img" });
    const follow = (event) => {
      const box = canvas.getBoundingClientRect();
      const share = (event.clientY - box.top) / box.height;
      this.select(Math.min(run.layer.units - 1, Math.max(0, Math.floor(share * run.layer.units))));
    };
    canvas.addEventListener("pointermove", follow);
    canvas.addEventListener("pointerdown", follow);
    this.timed = make("div", { class: "part of-gates" }, head, key, canvas, this.counts, ends, this.countsText);
    this.parts.append(
      this.timed,
      make(
        "div",
        { class: "part of-unit" },
        make("div", { class: "head" }, make("h3", {}, "One unit's window")),
        make("div", { class: "row" }, make("label", { for: this.unit.id }, "Unit"), this.unit),
        this.window,
        this.unitText,
      ),
    );
    this.choose(0);
  }

  addSample() {
    const { run } = this;
    if (!run.samples.length) {
      const hint = run.task
        ? "There are no sequences besides those of training, so none is shown."
        : "This folder knows no data: name some by --test, and the network reads them here.";
      this.element.append(make("p", { class: "note" }, hint));
      return;
    }
    const { image, channels } = run.task;
    this.drawn = make("canvas", { class: image ? "image" : "lines", role: "img" });
    if (!image) this.drawn.style.height = `${Math.min(260, Math.max(90, 56 * channels.length))}px`;
    const some = `${channels.slice(0, 8).join(", ")}${channels.length > 8 ? ", ..." : ""}`;
    const names =
      image || channels.length < 2 ? null : make("p", { class: "soft axis-text" }, `From top to bottom: ${some}.`);
    const title = make(
      "h4",
      {},
      image ? "What it has read" : this.gated ? "What it reads, at the same times" : "What it reads",
    );
    const seen = make("div", { class: "seen" }, title, this.drawn, names);
    const stage = make("div", { class: "stage" });
    if (image || !this.gated) stage.append(seen);
    else this.timed.append(seen);
    if (run.network) {
      this.lamps = make("canvas", { class: "lamps", role: "img" });
      this.lampsTitle = make("h4", {}, "Open units");
      this.answer = new Answer(run);
      const words = "Lit: open now. Tint: what a unit holds, blue above 0 and red below.";
      const lit = make("div", { class: "lit" }, this.lampsTitle, this.lamps, make("p", { class: "soft" }, words));
      stage.append(lit, this.answer.element);
    }
    if (!stage.children.length) return;
    this.parts.append(make("div", { class: "part of-sample" }, make("h3", {}, "A sample, step by step"), stage));
  }

  choose(at) {
    this.at = at;
    this.picture.show(this.run.places[at].levels, this.run.layer.units, this.run.steps);
    this.changed?.();
  }

  select(row) {
    this.row = row;
    this.unit.value = row;
    this.changed?.();
  }

  sampleAt(state) {
    return this.run.samples[Math.min(state.sample, this.run.samples.length - 1)];
  }

  // Everything again for a state { position, sample, step }. Returns whether a reading is still under way.
  draw(state) {
    const sample = this.sampleAt(state);
    const step = sample ? Math.min(state.step, sample.steps - 1) : 0;
    this.drawFigures(state);
    const cursor = sample ? this.shareOf(sample, step) : null;
    if (this.gated) this.drawGates(state, cursor);
    if (!sample) return false;
    const words = `Sample ${state.sample + 1} of ${this.run.task.name}, read up to step ${step + 1} of ${sample.steps}`;
    const key = [words, this.drawn.clientWidth, colour("ink")].join();
    if (key !== this.shownSample) this.drawSample(sample, step, words);
    this.shownSample = key;
    return this.run.network ? this.drawReading(state, sample, step) : false;
  }

  drawSample(sample, step, words) {
    this.drawn.setAttribute("aria-label", words);
    if (this.run.task.image) drawImage(this.drawn, this.run, sample, step);
    else drawLines(this.drawn, sample, step, (n) => this.shareOf(sample, n));
  }

  // Where on the time axis a step of the sample is, from 0 to 1.
  shareOf(sample, step) {
    const { times, steps } = this.run;
    if (!sample.times) return (step + 0.5) / steps;
    return (sample.times[step] - times[0]) / (times[steps - 1] - times[0] || 1);
  }

  drawFigures({ position }) {
    if (position === this.said) return;
    this.said = position;
    const { run } = this;
    const found = [];
    if (this.gated) {
      const price = this.costs.at(position);
      const fewer = price.lstm / price.operations;
      const times = fewer >= 1.05 ? `, ${precise(fewer)} times as many` : "";
      const own = run.task?.own_times ? ", mean of the samples here" : run.lengths ? ", on average" : "";
      found.push(["open", percent(price.open), price.open, "of all units and steps"]);
      const beside = run.layer.always_open
        ? "a sequence: every unit, at every step"
        : `a sequence${own}; an LSTM takes ${operations(price.lstm)}${times}`;
      found.push(["operations", operations(price.operations), price.operations, beside]);
    } else if (run.cost) {
      found.push([
        "operations",
        operations(run.cost.ops),
        run.cost.ops,
        `a sequence, ${percent(run.cost.updates)} of its steps updated`,
      ]);
    }
    if (run.errors) found.push(this.errorFigure(position));
    const cells = found.map(([name, text, value, beside]) =>
      make(
        "div",
        { class: name === "open" || name === "operations" ? name : "error" },
        make("dt", {}, name),
        make("dd", {}, make("b", { "data-value": value }, text), make("small", {}, beside)),
      ),
    );
    this.figures.replaceChildren(...cells);
    this.inWords = found.map(([name, text]) => `${name} ${text}`).join(", ");
  }

  // Measured at few thresholds: between two of them, those two are said.
  errorFigure(position) {
    const { task, errors } = this.run;
    const { measured, sequences, of } = errors;
    const count = sequences < of ? `${whole(sequences)} of ${whole(of)}` : whole(of);
    const on = `measured on ${count} ${task.part} sequences`;
    const limit = this.thresholds[position];
    const here = measured.find((one) => one.threshold === null || one.threshold === limit);
    if (here) return [task.metric, here.text, here.error, on];
    const below = measured.filter((one) => one.threshold < limit).at(-1);
    const above = measured.find((one) => one.threshold > limit);
    if (!above)
      return [task.metric, "not measured", "", `beyond ${threshold(below.threshold)}, where it is ${below.text}`];
    const text = below.text === above.text ? below.text : `${below.text} – ${above.text}`;
    return [
      task.metric,
      text,
      "",
      `at ${threshold(below.threshold)} and at ${threshold(above.threshold)}, the nearest thresholds measured`,
    ];
  }

  drawGates({ position }, cursor) {
    const { run } = this;
    const key = [position, cursor, this.row, this.at, this.element.clientWidth, colour("ink")].join();
    if (key === this.shown) return;
    this.shown = key;
    const [place, schedule] = [run.places[this.at], this.costs.shared[this.at]];
    this.picture.draw(position, { cursor, row: this.row });
    const most = drawCounts(this.counts, schedule, position, cursor);
    const of = `at most ${whole(most)} of ${whole(run.layer.units)}`;
    this.countsText.textContent = `The band below the picture: how many units are open at once, ${of}.`;
    const words = this.describeUnit(position);
    this.unitText.textContent = words;
    this.unit.setAttribute("aria-valuetext", words);
    this.picture.canvas.setAttribute(
      "aria-label",
      `Openness of ${plural(run.layer.units, "unit")}, by moment, over ${plural(run.steps, "step")}: ${this.inWords}`,
    );
    this.counts.setAttribute("aria-label", `Units open at each step, at most ${most}`);
    const limit = this.thresholds[position];
    drawWindow(this.window, { place, row: this.row, steps: run.steps, times: this.times, limit, position, cursor });
    this.window.setAttribute("aria-label", words);
  }

  describeUnit(position) {
    const { run, row } = this;
    const place = run.places[this.at];
    const unit = place.order[row];
    const name = `Unit ${whole(row + 1)} of ${whole(run.layer.units)} by moment (number ${whole(unit)})`;
    const windows = windowsOf(place.levels, row, run.steps, position);
    const values = Object.entries(place.values)
      .map(([value, all]) => `${value} ${precise(all[unit])}`)
      .join(", ");
    const ending = values ? ` ${values}.` : "";
    if (!windows.length) return `${name}: never open at this threshold.${ending}`;
    const word = timeWord(run);
    const open = windows.reduce((sum, [from, to]) => sum + to - from + 1, 0);
    let best = windows[0][0];
    let most = -1;
    for (const [from, to] of windows) {
      for (let step = from; step <= to; step++) {
        const k = opennessAt(place, place, row, step, run.steps, this.times[step]);
        if (k > most) [best, most] = [step, k];
      }
    }
    const first = `from ${word} ${moment(run, windows[0][0])} to ${moment(run, windows[0][1])}`;
    const where = windows.length > 1 ? `in ${windows.length} windows, the first ${first}` : first;
    const peak = `most open at ${word} ${moment(run, best)}, k = ${most.toFixed(2)}`;
    return `${name}: open ${where}, ${plural(open, "step")} in all; ${peak}.${ending}`;
  }

  drawReading(state, sample, step) {
    if (this.reading?.sample !== sample || this.reading.position !== state.position) {
      if (this.reading?.sample !== sample) this.isLong = false;
      this.reading = new Reading(this.run, sample, state.position, this.reading);
      this.begun = performance.now();
      if (!this.isLong) this.isLong = !this.reading.advance(AT_FIRST);
    } else if (performance.now() - this.begun > REST) this.reading.advance(LATER);
    const { reading } = this;
    const { done } = reading;
    this.answer.wait(done ? null : reading.progress);
    if (!done) return true;
    const open = drawLamps(this.lamps, reading, this.at, step);
    this.lampsTitle.textContent = `${whole(open)} of ${whole(this.run.layer.units)} units open`;
    this.lamps.setAttribute("aria-label", `${open} units are open at step ${step + 1}`);
    this.answer.draw(reading, step);
    return false;
  }
}

// The row nearest to the middle whose unit opens at this place of the slider: one with a window to look at.
function firstShown(run, position) {
  const { units } = run.layer;
  const middle = Math.floor(units / 2);
  const rows = Array.from({ length: units }, (_, row) => row).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
  return rows.find((row) => windowsOf(run.places[0].levels, row, run.steps, position).length) ?? middle;
}

function about(run) {
  const parts = [];
  if (run.layer) {
    const ways = run.layer.directions > 1 ? ", both directions" : "";
    const count =
      run.places.length > 1 ? ` in ${plural(run.places.length / run.layer.directions, "layer")}${ways}` : "";
    parts.push(
      run.layer.always_open ? "LSTM" : `${run.layer.gate} gates`,
      `${plural(run.layer.units, "unit")}${count}`,
    );
    if (run.layer.threshold) parts.push(`trained at threshold ${threshold(run.layer.threshold)}`);
  } else parts.push(run.cell);
  parts.push(plural(run.steps, "step"), plural(run.parameters, "parameter"));
  return `${run.task ? `${run.task.name}: ` : ""}${parts.join(", ")}`;
}

// What the network answers after each step, beside what it should.

import { make, percent, precise } from "./dom.js";
import { probabilities } from "./head.js";
import { drawTrace } from "./sample.js";

const MOST_BARS = 10;
const POINTS = 240; // of a trace: the head is computed only there

export class Answer {
  constructor(run) {
    this.run = run;
    this.title = make("h4", {}, run.task.per_step ? "The answer at this step" : "The answer so far");
    this.list = make("ol", { class: "bars" });
    this.trace = make("canvas", { class: "trace", role: "img", "aria-label": "The answer over the steps" });
    this.waiting = make("p", { class: "soft", hidden: true });
    this.said = make("p", { class: "said" });
    this.element = make("div", { class: "answer" }, this.title, this.said, this.waiting, this.list, this.trace);
  }

  wait(progress) {
    this.waiting.hidden = progress === null;
    this.waiting.textContent = progress === null ? "" : `reading ... ${percent(Math.floor(100 * progress) / 100)}`;
    this.element.classList.toggle("stale", progress !== null);
  }

  draw(reading, step) {
    const { task, network } = this.run;
    if (this.reading !== reading) {
      this.reading = reading;
      this.points = this.sampled(reading);
    }
    const target = this.target(reading.sample, step);
    const outputs = reading.answer(step);
    this.list.dataset.outputs = JSON.stringify([...outputs]);
    if (task.classes) this.drawClasses(probabilities(network.head, outputs), target[0]);
    else this.drawValues(outputs, target);
    const targets = task.classes ? null : this.targets(reading.sample);
    const strong = task.classes ? target[0] : null;
    drawTrace(this.trace, { points: this.points, targets, step, steps: reading.steps, strong });
  }

  sampled(reading) {
    const count = Math.min(POINTS, reading.steps);
    return Array.from({ length: count }, (_, n) => {
      const at = Math.round((n * (reading.steps - 1)) / Math.max(1, count - 1));
      const outputs = reading.answer(at);
      return { at, values: [...(this.run.task.classes ? probabilities(this.run.network.head, outputs) : outputs)] };
    });
  }

  // Of a sequence, or of this step.
  target(sample, step) {
    const width = this.run.task.per_step ? sample.target.length / sample.steps : sample.target.length;
    const from = this.run.task.per_step ? step * width : 0;
    return sample.target.subarray(from, from + width);
  }

  // Output by output: one value for all steps, or one a step.
  targets(sample) {
    if (!this.run.task.per_step) return [...sample.target].map((value) => [value]);
    const width = sample.target.length / sample.steps;
    return Array.from({ length: width }, (_, output) => [...sample.target].filter((_, at) => at % width === output));
  }

  drawClasses(shares, truth) {
    const { classes } = this.run.task;
    const best = shares.indexOf(Math.max(...shares));
    let shown = classes.map((_, at) => at);
    if (shown.length > MOST_BARS) {
      const order = shown.sort((a, b) => shares[b] - shares[a]).slice(0, MOST_BARS);
      shown = order.includes(truth) || truth < 0 ? order : [...order.slice(0, -1), truth];
    }
    const right = truth < 0 ? "" : best === truth ? ", which is right" : `; it is ${classes[truth]}`;
    this.said.textContent = `${classes[best]}${right}`;
    this.said.dataset.answer = classes[best];
    while (this.list.children.length < shown.length) {
      this.list.append(make("li", {}, make("span", {}), make("i", {}, make("b", {})), make("em", {})));
    }
    shown.forEach((at, place) => {
      const [name, bar, share] = this.list.children[place].children;
      this.list.children[place].className = at === truth ? "true" : "";
      name.textContent = classes[at];
      bar.firstChild.style.width = `${100 * shares[at]}%`;
      share.textContent = `${(100 * shares[at]).toFixed(0)} %`;
    });
  }

  drawValues(outputs, target) {
    const names = this.run.task.targets;
    const text = [...outputs].map((value, at) => {
      const beside = Number.isFinite(target[at]) ? `; it should be ${precise3(target[at])}` : "";
      const name = outputs.length > 1 ? `${names[at] ?? `value ${at + 1}`}: ` : "";
      return `${name}${precise3(value)}${beside}`;
    });
    this.said.textContent = text.join("\n");
  }
}

const precise3 = (value) =>
  Math.abs(value) >= 0.01 && Math.abs(value) < 1e5 ? String(Number(value.toPrecision(3))) : precise(value);

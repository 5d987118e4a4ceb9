// The page: what can be set, and everything that follows from it.

import { unpackAll } from "./bytes.js";
import { Chart, legend } from "./charts.js";
import { forgetColours, listed, make, operations, plural, precise, runColour, threshold, whole } from "./dom.js";
import { Panel } from "./panel.js";

const find = (name) => document.getElementById(name);
const SECONDS = 9; // to play a sample

const data = await unpackAll(JSON.parse(find("data").textContent));
const { thresholds, runs } = data;
const panels = runs.map((run, number) => new Panel(run, number, thresholds, data.start));
const state = { position: data.start, sample: 0, step: 0, playing: null };
const gated = panels.filter((panel) => panel.gated && !panel.run.layer.always_open);
const reading = panels.filter((panel) => panel.run.samples.length);
const charts = [];

let asked = false;

// Once a frame at most, however often something changes.
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame((now) => {
    asked = false;
    if (state.playing) play(now);
    const busy = panels.map((panel) => panel.draw(state)).some(Boolean);
    say();
    for (const chart of charts) chart.mark(state.position);
    if (busy || state.playing) draw();
  });
}

function say() {
  const text = threshold(thresholds[state.position]);
  find("threshold-value").textContent = text;
  find("threshold").setAttribute("aria-valuetext", [`${text}`, ...panels.map((panel) => panel.inWords)].join("; "));
  for (const chip of find("chips").children)
    chip.setAttribute("aria-pressed", String(Number(chip.value) === state.position));
  const steps = mostSteps();
  find("step-value").textContent = `${whole(state.step + 1)} of ${whole(steps)}`;
  find("step").value = state.step;
  find("step").setAttribute("aria-valuetext", `step ${state.step + 1} of ${steps}`);
}

const mostSteps = () => Math.max(1, ...reading.map((panel) => panel.sampleAt(state).steps));

function play(now) {
  const { from, since } = state.playing;
  const steps = mostSteps();
  state.step = Math.min(steps - 1, from + Math.floor(((now - since) / 1000 / SECONDS) * steps));
  if (state.step === steps - 1) stop();
}

function stop() {
  state.playing = null;
  find("play").classList.remove("playing");
  find("play").setAttribute("aria-label", "Play: the network reads the sample");
}

function start() {
  if (state.step >= mostSteps() - 1) state.step = 0;
  state.playing = { from: state.step, since: performance.now() };
  find("play").classList.add("playing");
  find("play").setAttribute("aria-label", "Pause");
}

function setUpControls() {
  const slider = find("threshold");
  slider.max = thresholds.length - 1;
  slider.value = state.position;
  slider.addEventListener("input", () => {
    state.position = Number(slider.value);
    draw();
  });
  const measured = new Set(gated.flatMap(({ run }) => run.errors?.measured.map((one) => one.threshold) ?? []));
  for (const value of [...measured].sort((a, b) => a - b)) {
    const chip = make("button", { type: "button", value: thresholds.indexOf(value) }, threshold(value));
    chip.addEventListener("click", () => {
      slider.value = state.position = Number(chip.value);
      draw();
    });
    find("chips").append(chip);
  }
  find("chips-row").hidden = measured.size === 0;
  find("threshold-row").hidden = gated.length === 0;
  setUpSteps();
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  find("controls").hidden = gated.length === 0 && reading.length === 0;
}

function setUpSteps() {
  find("step-row").hidden = reading.length === 0;
  if (!reading.length) return;
  const choice = find("sample");
  const most = reading.reduce((a, b) => (b.run.samples.length > a.run.samples.length ? b : a)).run;
  choice.append(...most.samples.map((sample, at) => make("option", { value: at }, nameOf(most, sample, at))));
  choice.addEventListener("change", () => {
    state.sample = Number(choice.value);
    setStep(mostSteps() - 1);
  });
  find("step").addEventListener("input", () => {
    stop();
    setStep(Number(find("step").value));
  });
  find("play").addEventListener("click", () => {
    if (state.playing) stop();
    else start();
    draw();
  });
  setStep(Math.floor(mostSteps() * 0.6));
}

function setStep(step) {
  find("step").max = mostSteps() - 1;
  state.step = Math.min(step, mostSteps() - 1);
  draw();
}

function nameOf(run, sample, at) {
  if (run.task.per_step) return `${at + 1}`;
  return run.task.classes
    ? `${at + 1}: ${run.task.classes[sample.target[0]]}`
    : `${at + 1}: ${precise(sample.target[0])}`;
}

function setUpPrice() {
  const known = gated.filter(({ run }) => run.errors);
  find("price").hidden = gated.length === 0;
  if (!gated.length) return;
  const alone = "Operations are counted, at every threshold.";
  const on = [...new Set(known.map(({ run }) => plural(run.errors.sequences, `${run.task.part} sequence`)))];
  find("price-text").textContent = known.length
    ? `Dots are errors measured on ${listed(on)}; between them nothing is known. ${alone}`
    : alone;
  const all = thresholds.map((_, at) => at);
  const shown = (wanted) => {
    const at = thresholds.indexOf(wanted);
    return at < 0 ? null : [at, threshold(wanted)];
  };
  const xTicks = [0, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.5, 0.9].map(shown).filter(Boolean);
  const common = { xTicks, xRange: [0, thresholds.length - 1], cursor: true };
  if (known.length) {
    const series = panels.filter(({ run }) => run.errors).map(errorSeries);
    const { metric, as_percent: share } = known[0].run.task;
    add("price-charts", {
      ...common,
      series,
      title: `${metric}, by threshold`,
      label: `Measured ${metric} at ${series[0].x.length} thresholds; the table below has the numbers`,
      yFormat: share ? (y) => `${precise(100 * y)} %` : precise,
    });
    find("price-table").append(table(known));
  } else find("price").querySelector("details").hidden = true;
  const counted = panels.filter((panel) => panel.costs || panel.run.cost);
  const series = counted.map((panel) => ({
    colour: runColour(panel.number),
    x: all,
    y: all.map((at) => (panel.costs ? panel.costs.at(at).operations : panel.run.cost.ops) || NaN),
  }));
  add("price-charts", {
    ...common,
    series,
    title: "operations of a sequence, by threshold",
    label: "Operations of a sequence at every threshold",
    yFormat: operations,
  });
  legend(
    find("price-legend"),
    panels.map((panel) => ({ name: panel.run.name, colour: runColour(panel.number) })),
  );
}

// Dots where it was measured; a network without gates has one error, whatever the threshold is.
function errorSeries({ run, number }) {
  const { measured } = run.errors;
  if (measured[0].threshold === null) {
    return { colour: runColour(number), x: [0, thresholds.length - 1], y: [measured[0].error, measured[0].error] };
  }
  const x = measured.map((one) => thresholds.indexOf(one.threshold));
  return { colour: runColour(number), dots: true, x, y: measured.map((one) => one.error) };
}

function table(known) {
  const cells = (tag, texts) =>
    make(
      "tr",
      {},
      ...texts.map((text, at) => make(at ? tag : "th", { scope: tag === "th" ? "col" : at ? null : "row" }, text)),
    );
  const head = ["threshold", ...known.flatMap(({ run }) => [`${run.name}: ${run.task.metric}`, "operations"])];
  const values = [...new Set(known.flatMap(({ run }) => run.errors.measured.map((one) => one.threshold)))].sort(
    (a, b) => a - b,
  );
  const rows = values.map((value) =>
    cells("td", [
      threshold(value),
      ...known.flatMap((panel) => {
        const found = panel.run.errors.measured.find((one) => one.threshold === value);
        return [found?.text ?? "", operations(panel.costs.at(thresholds.indexOf(value)).operations)];
      }),
    ]),
  );
  return make("table", {}, make("thead", {}, cells("th", head)), make("tbody", {}, ...rows));
}

function setUpCurves() {
  const known = panels.filter(({ run }) => run.curves);
  find("curves").hidden = known.length === 0;
  const wanted = [
    [
      ["validation_error", "test_error"],
      (run, name) => `${name.split("_")[0]} ${run.task?.metric ?? "error"}, by epoch`,
    ],
    [["train_loss"], () => "training loss, by epoch"],
    [["mean_k"], () => "mean openness k, by epoch"],
  ];
  for (const [names, title] of wanted) {
    const name = names.find((one) => known.some(({ run }) => run.curves[one]));
    const having = known.filter(({ run }) => run.curves[name]);
    if (!name || having.every(({ run }) => run.curves.epoch.length < 2)) continue;
    const series = having.map((panel) => ({
      colour: runColour(panel.number),
      x: panel.run.curves.epoch,
      y: panel.run.curves[name].map((y) => y ?? NaN),
    }));
    const share = names.length > 1 && having[0].run.task?.as_percent;
    const last = having.map(({ run }) => `${run.name} ends at ${precise(run.curves[name].at(-1) ?? NaN)}`).join(", ");
    add("curves-charts", {
      series,
      title: title(having[0].run, name),
      label: `${title(having[0].run, name)}: ${last}`,
      yFormat: share ? (y) => `${precise(100 * y)} %` : precise,
    });
  }
  legend(
    find("curves-legend"),
    known.map((panel) => ({ name: panel.run.name, colour: runColour(panel.number) })),
  );
  if (!find("curves-charts").children.length) find("curves").hidden = true;
}

function add(place, options) {
  const chart = new Chart(options);
  charts.push(chart);
  find(place).append(chart.element);
}

function redraw() {
  for (const chart of charts) chart.draw();
  draw();
}

find("title").textContent = listed(runs.map((run) => run.name));
if (runs.length === 1) panels[0].element.querySelector("h2").classList.add("unseen"); // the page's title says it
find("lead").textContent = gated.length
  ? "Each unit opens at its own moments only. Move the threshold: what is less open is closed, and costs nothing."
  : "Nothing here can be closed: every unit works at every step.";
find("runs").append(...panels.map((panel) => panel.element));
find("runs").classList.toggle("two", panels.length > 1);
for (const panel of panels) panel.changed = draw;
setUpControls();
setUpPrice();
setUpCurves();
new ResizeObserver(redraw).observe(document.body);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetColours();
  for (const panel of panels) panel.picture?.forget();
  redraw();
});
redraw();
document.documentElement.classList.add("ready");

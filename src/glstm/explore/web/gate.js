// How open a unit is. Whether it is open at all, its level says; this is the value, by the rule of glstm's gates.

const SHAPES = {
  bell: (u) => Math.exp(-u * u),
  triangle: (u) => Math.max(0, 1 - Math.abs(u)),
  box: () => 1,
  open: () => 1,
};

// Times of the steps in the layer's own relative time.
export function relativeTimes(run, times, steps) {
  const found = new Float64Array(steps);
  for (let step = 0; step < steps; step++) {
    found[step] = ((times ? times[step] : step + 1) - run.layer.origin) / run.layer.unit;
  }
  return found;
}

// k of the unit in this row, by moment, at a step of relative time `time`; `table` has the levels, and k if it must.
export function opennessAt(place, table, row, step, steps, time) {
  const at = row * steps + step;
  if (table.levels[at] === 0) return 0;
  if (table.k) return table.k[at];
  const unit = place.order[row];
  const { at: moment, width, period, start } = place.pulses;
  const begun = Number.isFinite(period[unit]) ? Math.floor((time - start[unit]) / period[unit]) * period[unit] : 0;
  return SHAPES[place.shape]((time - begun - moment[unit]) / width[unit]);
}

// Windows [first, last] of steps at which the unit in this row is open.
export function windowsOf(levels, row, steps, position) {
  const found = [];
  for (let step = 0, at = row * steps; step < steps; step++, at++) {
    if (levels[at] <= position) continue;
    if (found.length && found[found.length - 1][1] === step - 1) found[found.length - 1][1] = step;
    else found.push([step, step]);
  }
  return found;
}

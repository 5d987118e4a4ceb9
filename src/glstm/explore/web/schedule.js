// Which units are open when, and what that costs, at every place of the slider.

// Of one layer and direction. A unit is open at position p where its level is above p. All counts of all positions are
// made once, so that moving the slider only adds up numbers, one a step.
export class Schedule {
  constructor(levels, units, steps, positions) {
    Object.assign(this, { levels, units, steps });
    const size = positions * steps;
    this.now = new Uint16Array(size); // open at a step
    this.stay = new Uint16Array(size); // open there and at the step before
    this.ever = new Uint16Array(size); // open at any step before
    for (let unit = 0, at = 0; unit < units; unit++) {
      let before = 0;
      let highest = 0;
      for (let step = 0; step < steps; step++, at++) {
        const level = levels[at];
        const both = level < before ? level : before;
        if (level) this.now[(level - 1) * steps + step]++;
        if (both) this.stay[(both - 1) * steps + step]++;
        if (highest) this.ever[(highest - 1) * steps + step]++;
        if (level > highest) highest = level;
        before = level;
      }
    }
    for (const counts of [this.now, this.stay, this.ever]) {
      for (let at = size - steps - 1; at >= 0; at--) counts[at] += counts[at + steps];
    }
  }

  // Open pairs of unit and step, and operations, of sequences of these lengths, which increase. This is glstm's
  // count_cached_ops: nothing is computed twice.
  count(position, inputs, lengths) {
    const { now, stay, ever, steps } = this;
    const found = [];
    let open = 0;
    let operations = 0;
    let before = 0;
    let next = 0;
    for (let step = 0, at = position * steps; step < steps && next < lengths.length; step++, at++) {
      const here = now[at];
      operations += 8 * stay[at] * before + 8 * (here - stay[at]) * ever[at] + before + here * (8 * inputs + 36);
      open += here;
      before = here;
      if (step + 1 === lengths[next]) {
        found.push({ open, operations });
        next++;
      }
    }
    return found;
  }
}

// The mean cost of a sequence of a run. Sequences share their times, and may end earlier; or, where each has its own,
// they are the samples on the page.
export class Costs {
  constructor(run, positions) {
    this.run = run;
    const { places, layer } = run;
    const make = (levels, steps) => new Schedule(levels, layer.units, steps, positions);
    this.shared = places.map((place) => make(place.levels, run.steps));
    const own = run.samples.filter((sample) => sample.tables);
    const lengths = run.lengths ?? [[run.steps, 1]];
    this.groups = own.length
      ? own.map((sample) => ({
          schedules: sample.tables.map((table) => make(table.levels, sample.steps)),
          lengths: [[sample.steps, 1]],
        }))
      : [{ schedules: this.shared, lengths }];
    this.known = new Map();
  }

  at(position) {
    if (!this.known.has(position)) this.known.set(position, this.count(position));
    return this.known.get(position);
  }

  count(position) {
    const { places, layer } = this.run;
    let sequences = 0;
    let steps = 0;
    let open = 0;
    let operations = 0;
    for (const { schedules, lengths } of this.groups) {
      const ends = lengths.map(([length]) => length);
      const parts = schedules.map((one, at) => one.count(position, places[at].inputs, ends));
      lengths.forEach(([length, count], at) => {
        sequences += count;
        steps += count * length;
        for (const part of parts) {
          open += count * part[at].open;
          operations += count * part[at].operations;
        }
      });
    }
    const lstm = (layer.lstm_ops_a_step * steps) / sequences;
    return {
      open: open / (steps * layer.units * places.length),
      operations: layer.always_open ? lstm : operations / sequences,
      lstm,
    };
  }
}

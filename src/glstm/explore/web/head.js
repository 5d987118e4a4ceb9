// What follows the recurrent layer: linear layers and the usual functions, one stage after the other.

const each = (f) => (row, stage) => row.map((value) => f(value, stage.number));

const STAGES = {
  nothing: (row) => row,
  relu: each((x) => Math.max(0, x)),
  leaky_relu: each((x, slope) => (x < 0 ? slope * x : x)),
  sigmoid: each(sigmoid),
  tanh: each(Math.tanh),
  silu: each((x) => x * sigmoid(x)),
  gelu: each((x) => 0.5 * x * (1 + erf(x / Math.SQRT2))),
  gelu_tanh: each((x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))),
  softmax,
  log_softmax: (row) => softmax(row).map(Math.log),
  layer_norm: (row, { number, gain, shift }) => {
    const mean = row.reduce((sum, x) => sum + x, 0) / row.length;
    const variance = row.reduce((sum, x) => sum + (x - mean) ** 2, 0) / row.length;
    return row.map((x, at) => ((x - mean) / Math.sqrt(variance + number)) * gain[at] + shift[at]);
  },
  rescale: (row, { gain, shift }) => row.map((x, at) => x * gain[at] + shift[at]),
  linear: (row, { weight, bias }) => {
    const made = new Float64Array(bias.length);
    for (let out = 0, at = 0; out < made.length; out++) {
      let sum = bias[out];
      for (let from = 0; from < row.length; from++, at++) sum += weight[at] * row[from];
      made[out] = sum;
    }
    return made;
  },
};

export function sigmoid(x) {
  return 1 / (1 + Math.exp(-x));
}

export function softmax(row) {
  const most = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - most));
  const sum = powers.reduce((total, x) => total + x, 0);
  return powers.map((x) => x / sum);
}

// The error function by its series, and where that loses digits, by a continued fraction.
function erf(x) {
  if (Math.abs(x) > 3) {
    let fraction = 0;
    for (let term = 40; term > 0; term--) fraction = term / 2 / (Math.abs(x) + fraction);
    return Math.sign(x) * (1 - Math.exp(-x * x) / (Math.sqrt(Math.PI) * (Math.abs(x) + fraction)));
  }
  let sum = x;
  for (let n = 1, power = x; n < 60; n++) {
    power *= (-x * x) / n;
    sum += power / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

export function outputsOf(head, row) {
  return head.reduce((values, stage) => STAGES[stage.does](values, stage), Float64Array.from(row));
}

// Outputs as probabilities, whatever the head ends in.
export function probabilities(head, outputs) {
  const last = head.length ? head[head.length - 1].does : "";
  if (last === "softmax") return outputs;
  return last === "log_softmax" ? outputs.map(Math.exp) : softmax(outputs);
}

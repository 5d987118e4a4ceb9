"""Networks in whole numbers: C and Python agree to the last bit, and both say what the network in floats says."""

import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from networks import KINDS, STEPS, deep_network, network, raw_network, raw_sequences
from test_export_c import COMPILERS, SANITIZED, built, run
from test_head import usual

from glstm import GLSTM, SequenceModel, deploy
from glstm.bench.cortex_m4 import measure, missing_tools
from glstm.errors import UserError
from glstm.models import linear_head
from glstm.runtime.export_c import export_c, vectors_from, whole_vectors
from glstm.runtime.int8_states import _logistic, _tanh, int8_states
from glstm.runtime.quantize import constant_bytes_int8, dequantized

V_T = 0.01
needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


def sequences(plan, count=4) -> torch.Tensor:
    return torch.randn(STEPS, count, plan.inputs, generator=torch.Generator().manual_seed(3))


def every() -> SequenceModel:
    model = network("wide gates")
    return SequenceModel(model.layer, usual(12, 3), reads="every").eval()


def with_softmax(inputs, outputs):
    """A head that needs none of the functions that layers in floats have."""
    return torch.nn.Sequential(torch.nn.Linear(inputs, outputs), torch.nn.Softmax(-1))


MODELS = {
    **{kind: lambda kind=kind: deep_network(kind) for kind in KINDS},
    "every": every,
    "raw": lambda: raw_network("mask", rescaled=True),
}


@needs_gcc
@pytest.mark.parametrize("kind", MODELS)
def test_c_computes_the_same_whole_numbers(kind, tmp_path):
    """With sanitizers, so that no sum overflows unseen; samples may be far outside of the calibrated range."""
    model = MODELS[kind]()
    plan = deploy(model, STEPS, V_T).plan
    x = raw_sequences("mask") if kind == "raw" else sequences(plan)
    states = int8_states(plan, x)
    x[5, 0] *= 1e9
    vectors = whole_vectors(states, x)
    export_c(plan, tmp_path, "net", vectors, states)
    done = run(built(["gcc", "-std=c99"], tmp_path, "-DNET_TEST", *SANITIZED))
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.fullmatch(r"net: largest difference from the same whole numbers in Python ([-.e\d]+)\n", done.stdout)
    assert float(found[1]) <= plan.unit.allowed(vectors.y).max() / 10  # of the head, which is in floats
    (tmp_path / "size.c").write_text('#include "net.h"\nint main(void) { return (int)(sizeof(net_state) % 251); }\n')
    subprocess.run(["gcc", "size.c", "-o", "size"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "size"]).returncode == states.state_bytes % 251


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("head", [linear_head, with_softmax])
def test_every_compiler_takes_it_without_a_warning(compiler, head, tmp_path):
    plan = deploy(raw_network("carry", head=head), STEPS, V_T).plan
    x = raw_sequences("carry")
    states = int8_states(plan, x)
    export_c(plan, tmp_path, "net", whole_vectors(states, x), states, windows=(20, 5))
    assert run(built(compiler, tmp_path, "-DNET_TEST")).returncode == 0
    built(compiler, tmp_path, "-DNET_MAIN")


@pytest.mark.parametrize("kind", ["g-LSTM", "stack", "LSTM", "every"])
def test_it_is_close_to_the_network_in_floats(kind):
    model = MODELS[kind]()
    plan = deploy(model, STEPS, V_T).plan
    x = sequences(plan, 50)
    states = int8_states(plan, x)
    exact, weights = (deploy(one, STEPS, V_T)(x) for one in (model, dequantized(model, plan, states.weights)))
    off = float((states(x) - weights).abs().max() / exact.abs().max())
    assert 0 < off < 0.05
    mean_off = float((states(x) - exact).pow(2).mean().sqrt() / exact.std())
    assert mean_off < 0.03


def test_functions_of_whole_numbers():
    z = np.arange(-(20 * 2**16), 20 * 2**16, 97)
    real = z / 2**16
    assert np.abs(_logistic(z) / 2**15 - 1 / (1 + np.exp(-real))).max() < 4e-5
    assert np.abs(_tanh(z) / 2**15 - np.tanh(real)).max() < 8e-5


def test_units_that_are_never_open_together_share_their_sums():
    plan = deploy(network("g-LSTM"), STEPS, V_T).plan
    states = int8_states(plan, sequences(plan))
    (layer,), slot = plan.layers, states.layers[0].slot
    assert states.layers[0].slots == layer.most_open < layer.units
    for row in layer.table > 0:
        assert len(set(slot[row])) == row.sum()
    assert states.state_bytes < 0.55 * plan.state_bytes
    assert states.constant_bytes < constant_bytes_int8(plan, states.weights) + 1000


@pytest.mark.skipif(bool(missing_tools()), reason="no emulator")
def test_on_a_cortex_m4_it_takes_fewer_instructions_than_int8_weights():
    torch.manual_seed(0)
    model = SequenceModel(GLSTM(1, 24, mu=(1, 100), sigma=2.0), torch.nn.Linear(24, 4)).eval()
    plan = deploy(model, 100, V_T).plan
    x = torch.rand(100, 3, 1)
    states = int8_states(plan, x)
    weights = states.weights
    known = measure(plan, vectors_from(dequantized(model, plan, weights), V_T, x), weights)
    whole = measure(plan, whole_vectors(states, x), states)
    assert whole.difference < 1e-6
    assert whole.state == states.state_bytes < known.state / 2
    assert whole.instructions < 0.8 * known.instructions


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            lambda: SequenceModel(network("g-LSTM").layer, torch.nn.Linear(23, 2), reads="mean"),
            "this one reads its mean",
        ),
        (
            lambda: SequenceModel(GLSTM(1, 4, bidirectional=True, mu=(1, STEPS), sigma=9.0), torch.nn.Linear(8, 2)),
            "for networks of one direction",
        ),
    ],
)
def test_what_it_is_not_for_is_said(made, says):
    plan = deploy(made(), STEPS, V_T).plan
    with pytest.raises(UserError, match=says):
        int8_states(plan, sequences(plan))
    with pytest.raises(UserError, match="for networks with known steps"):
        int8_states(deploy(network("g-LSTM"), threshold=V_T).plan, sequences(plan))

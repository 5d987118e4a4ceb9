"""On an emulated Cortex-M4, where there is a compiler and an emulator for it."""

import pytest
import torch

from glstm import GLSTM, SequenceModel, deploy
from glstm.analysis.energy import CORTEX_M4
from glstm.bench.cortex_m4 import dense_twin, measure, missing_tools
from glstm.models import deep_head
from glstm.runtime.energy import work_of
from glstm.runtime.export_c import vectors_from
from glstm.runtime.quantize import dequantized, quantize

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"needs {', '.join(missing_tools())}")

STEPS, UNITS, V_T = 100, 24, 0.01


@pytest.mark.parametrize("int8", [False, True])
def test_it_says_what_pytorch_says_in_far_fewer_instructions(int8):
    torch.manual_seed(0)
    model = SequenceModel(GLSTM(1, UNITS, mu=(1, STEPS), sigma=2.0), deep_head(UNITS, 4, width=30)).eval()
    x = torch.rand(STEPS, 3, 1)
    plans, found = [], []
    for one in (model, dense_twin(model)):
        plan = deploy(one, STEPS, V_T).plan
        eight = quantize(plan, x) if int8 else None
        vectors = vectors_from(dequantized(one, plan, eight) if eight else one, V_T, x)
        plans.append(plan)
        found.append(measure(plan, vectors, eight))
    gated, dense = found
    assert gated.difference < 1e-5
    assert dense.difference < 1e-5
    # An operation takes an instruction or two, a nonlinear function some fifty: what the schedule saves is saved there.
    for plan, one in zip(plans, found, strict=True):
        assert 0.5 * plan.ops < one.instructions < 8 * plan.ops + 40_000
    # On paper an instruction takes a cycle or more; loops and calls are instructions that the paper leaves out.
    for plan, one in zip(plans, found, strict=True):
        cycles = CORTEX_M4.joules(work_of(plan), 0, 0) / 300e-12
        assert int8 or 0.6 * one.instructions < cycles < 2 * one.instructions
    assert dense.instructions > 10 * gated.instructions
    assert gated.state < dense.state
    assert gated.stack > 4 * 2 * 30  # two rows of the head's width

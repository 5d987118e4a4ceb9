"""On an emulated Cortex-M4, where there is a compiler and an emulator for it."""

import numpy as np
import pytest
import torch

from glstm import GLSTM, SequenceModel, deploy
from glstm.bench.cortex_m4 import dense_lstm, measure, missing_tools
from glstm.models import linear_head
from glstm.runtime.quantize import quantize

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"needs {', '.join(missing_tools())}")

STEPS, UNITS = 100, 24


@pytest.mark.parametrize("int8", [False, True])
def test_it_says_what_pytorch_says_in_far_fewer_instructions(int8):
    torch.manual_seed(0)
    layer = GLSTM(1, UNITS, mu=(1, STEPS), sigma=2.0)
    plan = deploy(SequenceModel(layer, linear_head(UNITS, 4)).eval(), STEPS, 0.01).plan
    x = np.random.default_rng(0).random((3, STEPS, 1), np.float32)
    sample = torch.from_numpy(x).transpose(0, 1).contiguous()
    plain = dense_lstm(1, UNITS, 4, STEPS)
    gated, dense = (measure(one, x, quantize(one, sample) if int8 else None) for one in (plan, plain))
    assert gated.difference < 1e-5
    assert dense.difference < 1e-5
    ratio = (plain.ops / plan.ops, dense.instructions / gated.instructions)
    assert ratio[1] == pytest.approx(ratio[0], rel=0.6)  # instructions follow the operations
    assert gated.instructions > plan.ops / 4
    assert gated.state < dense.state

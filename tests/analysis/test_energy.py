"""Energy on paper: counts against a step-by-step tally, and constants against their sources."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glstm import GLSTM, GatedLSTM, Periodic, SequenceModel, count_cached_ops, deploy
from glstm.analysis.energy import CORTEX_M4, GATED_CELL, MACHINES, OPENNESS, SERVER, Work, work_of_layer, work_of_lstm
from glstm.models import deep_head
from glstm.runtime.energy import lstm_work_of, work_of
from glstm.runtime.timed_plan import TimedPlan


def tally(is_open: torch.Tensor, inputs: int) -> Work:
    """What native/stream.h does, step by step."""
    total, ever, before = Work(), set(), set()
    for number, row in enumerate(is_open):
        now = set(row.nonzero().flatten().tolist())
        total += Work(others=1, state=3) * len(before)  # h, r -> d
        begins = number == 0 or now != before
        for unit in now:
            if begins:
                reads = len(before) if unit in before else len(ever)
                total += Work(state=4 + 1)  # its sums and r are written
                if unit not in before:
                    total += Work(constants=4)  # its bias begins the sums
            else:
                reads = len(now)
            total += Work(products=4, constants=4, state=1) * (reads + inputs)
            total += Work(state=4, constants=1) + GATED_CELL  # its sums and k are read
        ever |= now
        before = now
    return total


@given(steps=st.integers(0, 12), hidden=st.integers(1, 6), inputs=st.integers(1, 3), share=st.floats(0, 1))
def test_the_work_equals_a_tally(steps, hidden, inputs, share):
    k = (torch.rand(steps, hidden) < share).float()
    work = work_of_layer(k, inputs)
    assert work == tally(k > 0, inputs)
    own = work.products - GATED_CELL.products * int(k.sum())
    assert 2 * own + work.others - GATED_CELL.others * int(k.sum()) == count_cached_ops(k, inputs) - 36 * int(k.sum())


def test_a_plain_lstm_by_hand():
    work = work_of_lstm(784, 110, 1)
    assert work.products == 784 * 110 * (4 * 111 + 5 * 9 + 3)
    assert work.constants == 784 * 110 * 4 * (1 + 110 + 1)
    assert work.divisions == 784 * 110 * 5


def test_constants_cost_what_their_sources_say():
    """A 3 V supply at 100 uA/MHz gives 300 pJ a cycle; of the server's memories, larger ones cost more."""
    assert CORTEX_M4.joules(Work(products=1), 1, 1) == pytest.approx(3 * 100e-6 / 1e6 * 3)
    costs = [SERVER.joules(Work(constants=1), size, 1) for size in (8_192, 32_768, 2**20, 2**20 + 1)]
    assert costs == pytest.approx([1e-12 * (access + 70 / 8) for access in (5, 10, 50, 975)])
    assert SERVER.joules(Work(divisions=1), 1, 1) == pytest.approx(1e-12 * (26.27 + 8.75))
    for machine in MACHINES:
        assert all(one.source and one.picojoules >= 0 for one in machine.constants)


@pytest.mark.parametrize("reads", ["last", "every"])
def test_a_runtime_says_its_energy_beside_an_lstms(reads):
    torch.manual_seed(0)
    model = SequenceModel(GLSTM(2, 24, 2, mu=(1, 100), sigma=2.0), deep_head(24, 4, width=30), reads=reads).eval()
    runtime = deploy(model, 100, 0.01)
    plan, readings = runtime.plan, 100 if reads == "every" else 1
    units = plan.layers[-1].units
    layers = [work_of_layer(torch.from_numpy(layer.table), layer.inputs) for layer in plan.layers]
    assert work_of(plan).products == sum(one.products for one in layers) + readings * (30 * units + 30 * 30 + 4 * 30)
    dense = work_of_lstm(100, 24, 2).products + work_of_lstm(100, 24, 24).products
    assert lstm_work_of(plan).products == dense + readings * (30 * 24 + 30 * 30 + 4 * 30)
    assert list(runtime.energy) == ["Cortex-M4", "server core"]
    assert runtime.energy["Cortex-M4"].network == pytest.approx(CORTEX_M4.joules(work_of(plan), 1, 1))
    for energy in runtime.energy.values():
        assert 0 < energy.network < energy.lstm / (1.5 if reads == "every" else 3)


def test_a_stream_without_an_end_is_counted_over_one_period():
    """As many steps of the same network with known times need the same, but for k."""
    torch.manual_seed(0)
    layer = GatedLSTM(2, 8, gate=Periodic(mu=(0, 30), sigma=2.0, tau=30.0))
    runtime = deploy(SequenceModel(layer, torch.nn.Linear(8, 2)), threshold=0.01, reads="last")
    work, plan = work_of(runtime.plan), runtime.plan
    assert isinstance(plan, TimedPlan)
    assert plan.steps == 30
    k = torch.from_numpy(plan.layers[0].openness(plan.scale.moments(np.arange(1, 91.0))))
    two, three = (work_of_layer(k[:steps], 2, reads_k=False) for steps in (60, 90))
    opened = int(k[60:].count_nonzero())
    assert work == three - two + OPENNESS["bell"] * opened + Work(products=16, constants=18, state=18)
    assert 0 < runtime.energy["Cortex-M4"].network < runtime.energy["Cortex-M4"].lstm

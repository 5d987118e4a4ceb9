"""What is measured in a trained network."""

import numpy as np
import pytest
import torch

from glstm.experiments.probes import probe
from glstm.recipes import make_model, make_task
from glstm.training.evaluate import error_sums
from small_runs import SMALL

NARROW = SMALL.changed(
    units=9, gate={"mu": (1.0, 30.0), "sigma": 1.5}, options={"threshold": 0.01}, data={"steps": 20, "test_size": 40}
)


@pytest.fixture
def narrow():
    """A network some of whose units open after the last step, so never."""
    task = make_task(NARROW)
    torch.manual_seed(1)
    model = make_model(NARROW, task)
    never = int((model.layer.openness(task.steps)[0] == 0).all(0).sum())
    assert 0 < never < NARROW.units
    return model, task, never


def test_without_the_units_that_never_open_the_error_is_the_same(narrow):
    model, task, never = narrow
    found = probe("pruned", NARROW, model, task, ())
    assert (found["units"], found["units_left"]) == (NARROW.units, NARROW.units - never)
    assert found["weights_left"] < found["weights"] == sum(one.numel() for one in model.layer.parameters())
    assert found["error"] == pytest.approx(float(error_sums(model, task)[1]) / task.test_size)


@pytest.mark.parametrize("cell", ["glstm", "lstm"])
def test_a_sequence_read_step_by_step_ends_where_the_network_ends(cell, narrow):
    task = narrow[1]
    recipe = NARROW if cell == "glstm" else NARROW.changed(cell="lstm")
    model = narrow[0] if cell == "glstm" else make_model(recipe, task)
    found = probe("one sequence", recipe, model, task, ())
    x = task.test_samples(slice(0, 1))[0]
    with torch.no_grad():
        _, (h_n, c_n) = model.layer(x)
    assert found["x"] == x[:, 0, 0].tolist()
    assert len(found["units"]) == 3
    for unit in found["units"]:
        assert unit["c"][-1] == pytest.approx(float(c_n[0, 0, unit["unit"]]), abs=1e-6)
        assert unit["h"][-1] == pytest.approx(float(h_n[0, 0, unit["unit"]]), abs=1e-6)
        k, c = np.array(unit["k"]), np.array([0.0, *unit["c"]])
        assert (np.diff(c)[k == 0] == 0).all()  # closed: nothing happens, exactly
        assert (np.diff(c)[k > 0] != 0).any()
    moments = [int(np.argmax(unit["k"])) for unit in found["units"]]
    assert moments == sorted(moments)

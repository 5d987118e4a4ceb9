"""Mean openness is one number, whoever computes it: over real steps and units, whatever the batches and processes."""

import csv

import numpy as np
import pytest
import torch

from glstm import GLSTM, SequenceModel
from glstm.data import ArrayTask
from glstm.training import Population, Settings
from glstm.training.evaluate import mean_cost
from glstm.training.openness import mean_openness
from helpers import glstm_command

DRAWS = np.random.default_rng(0)
LENGTHS = [2, 3, 12, 11, 2, 12, 3, 4, 12, 2]
X = [DRAWS.normal(size=(steps, 1)) for steps in LENGTHS]
Y = [float(one.sum()) for one in X]
TIMES = [np.cumsum(DRAWS.uniform(0.2, 2, steps)) for steps in LENGTHS]
SETTINGS = Settings(optimizer="adam", lr=0.02, gate_lr=None, batch=4, epochs=1, budget=1.0)


def task(own_times: bool) -> ArrayTask:
    part = {"x": X, "y": Y, "times": TIMES} if own_times else {"x": X, "y": Y}
    return ArrayTask(**part, test=part, validation=0)


def model(task: ArrayTask, bidirectional: bool = False) -> SequenceModel:
    layer = GLSTM(1, 4, mu=(1.0, 3.0), sigma=1.0, threshold=0.1, bidirectional=bidirectional)
    return SequenceModel(layer, torch.nn.Linear(4 * (1 + bidirectional), 1))


def expected(layer: GLSTM, own_times: bool) -> tuple[float, float]:
    tables = [layer.openness(torch.tensor(own) if own_times else len(own)).detach() for own in TIMES]
    steps = sum(k.numel() for k in tables)
    return sum(float(k.sum()) for k in tables) / steps, sum(float(k.gt(0).sum()) for k in tables) / steps


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("own_times", [False, True])
@pytest.mark.parametrize("size", [3, 500])
def test_batches_do_not_change_it(own_times, bidirectional, size, monkeypatch):
    for module in ("population", "evaluate"):
        monkeypatch.setattr(f"glstm.training.{module}.TEST_BATCH", size)
    own = task(own_times)
    population = Population(own, model(own, bidirectional), SETTINGS)
    (score,) = population.test()
    layer = population.models[0].layer
    price = mean_cost(layer, own)
    for found in ((score.mean_k, score.open_share), (price.mean_k, price.open_share)):
        assert found == pytest.approx(expected(layer, own_times), rel=1e-5)


def test_units_of_all_tables_count_alike():
    """As in glstm.budget: a wide layer has more units than a narrow one."""
    tables = [torch.ones(5, 6), torch.zeros(5, 2, 3)]
    assert float(mean_openness(tables)) == pytest.approx(6 / 9)
    assert float(mean_openness(tables, torch.tensor([5, 1]))) == pytest.approx(6 / 9)


def test_processes_do_not_change_it(tmp_path):
    """Long sequences go to one process and short ones to the other, and the last batch is not shared equally."""
    lengths = [2, 12] * 11 + [2]
    x = np.zeros((len(lengths), 12, 1))
    for number, steps in enumerate(lengths):
        x[number, :steps, 0] = DRAWS.normal(size=steps)
    part = {"x": x, "y": x.sum((1, 2)), "lengths": np.array(lengths)}
    np.savez(
        tmp_path / "data.npz",
        **{f"{name}_{of}": one for of in ("train", "validation", "test") for name, one in part.items()},
    )
    options = [
        "data.npz",
        "--units",
        4,
        "--mu",
        "1,3",
        "--sigma",
        1,
        "--budget",
        1,
        "--batch",
        4,
        "--epochs",
        3,
        "--device",
        "cpu",
    ]
    rows = []
    for devices in (1, 2):
        done = glstm_command("train", *options, "--devices", devices, "--out", f"run{devices}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        with (tmp_path / f"run{devices}" / "metrics.csv").open() as file:
            rows.append(list(csv.DictReader(file)))
    for one, two in zip(*rows, strict=True):
        for name in ("train_loss", "validation_loss", "mean_k", "open_share"):
            assert float(one[name]) == pytest.approx(float(two[name]), rel=1e-4), name

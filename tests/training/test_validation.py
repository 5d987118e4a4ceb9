"""Validation decides which epoch is the best, and when to stop; the test set is used once."""

import csv
import json

import numpy as np
import pytest
import torch

from glstm import GLSTM, PLSTM, SequenceModel
from glstm.data import ArrayTask
from glstm.errors import UserError
from glstm.models import linear_head
from glstm.report.run_page import how_chosen
from glstm.report.runs import load_runs
from glstm.training import Population, Settings, Trainer
from glstm.training.in_memory import fit
from glstm.training.run import RunFolder

DRAWS = np.random.default_rng(1)
STEPS, INPUTS = 12, 2


def sequences(count: int = 60):
    """The class is the sign of the first channel in the middle of a sequence, of unequal lengths."""
    x = [DRAWS.normal(3, 2, (int(DRAWS.integers(7, STEPS + 1)), INPUTS)) for _ in range(count)]
    return x, np.array(["low" if one[5, 0] < 3 else "high" for one in x])


TASK = ArrayTask(*sequences(), name="middle")
OWN_TIMES = ArrayTask(
    TASK.sequences["train"].x,
    TASK.sequences["train"].y,
    times=[np.cumsum(DRAWS.uniform(0.2, 2, len(one))) for one in TASK.sequences["train"].x],
    name="own times",
)
SETTINGS = Settings(optimizer="adam", lr=0.02, gate_lr=None, batch=16, epochs=12, clip=1.0)


def model(task: ArrayTask = TASK, **options) -> SequenceModel:
    layer = GLSTM(INPUTS, 6, mu=(task.first_time, task.last_time), sigma=0.4 * task.span, **options)
    return SequenceModel(
        layer,
        linear_head(6, task.outputs),
        inputs=task.make_inputs(),
        outputs=task.make_outputs(),
        classes=task.classes,
    )


def trained(folder, task=TASK, **changes) -> Trainer:
    trainer = Trainer(task, lambda: model(task), SETTINGS.changed(**changes), folder)
    trainer.begin()
    trainer.fit()
    trainer.finish()
    return trainer


def test_the_best_epoch_is_kept_beside_the_last(tmp_path):
    trainer = trained(tmp_path / "run")
    run = trainer.runs[0]
    errors = [(row.validation_error, row.validation_loss) for row in run.history]
    assert run.best_row.epoch == errors.index(min(errors)) + 1 < len(errors)
    assert all(row.test_error is None for row in run.history)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["epoch"], result["validation_error"]) == (run.best_row.epoch, min(errors)[0])
    folder = RunFolder(tmp_path / "run")
    best, last = folder.load_model(), folder.load_model(last=True)
    assert all(torch.equal(value, run.best[name]) for name, value in best.state_dict().items())
    assert all(torch.equal(value, run.model.state_dict()[name]) for name, value in last.state_dict().items())
    again = Population(TASK, best, SETTINGS)
    assert again.test("validation")[0].error == pytest.approx(result["validation_error"])
    assert again.test()[0].error == pytest.approx(result["test_error"])
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["validation_error"]) for row in rows] == [error for error, _ in errors]
    assert all(row["test_error"] == "" for row in rows)


def test_patience_stops_so_many_epochs_after_the_best(tmp_path):
    run = trained(tmp_path / "run", epochs=200, patience=4).runs[0]
    assert len(run.history) == run.best_row.epoch + 4 < 200


def test_networks_with_patience_end_together_as_they_do_alone(tmp_path):
    settings = [SETTINGS.changed(seed=seed, epochs=60, patience=3, lr=lr) for seed, lr in ((0, 0.02), (1, 0.05))]
    together = Trainer(TASK, model, settings, [tmp_path / "a", tmp_path / "b"])
    together.begin()
    together.fit()
    lengths = [len(run.history) for run in together.runs]
    assert len(set(lengths)) == 2, "this test needs networks that stop at different epochs"
    for number, setting in enumerate(settings):
        alone = Trainer(TASK, model, setting, tmp_path / f"alone{number}")
        alone.begin()
        alone.fit()
        ours, theirs = together.runs[number], alone.runs[0]
        assert len(ours.history) == len(theirs.history)
        assert ours.result == theirs.result
        for name, value in theirs.model.state_dict().items():
            assert torch.equal(ours.model.state_dict()[name], value)


def test_a_resumed_run_has_the_same_best_epoch(tmp_path):
    whole = trained(tmp_path / "whole", epochs=40, patience=6).runs[0]
    stopped = Trainer(TASK, model, SETTINGS.changed(epochs=40, patience=6), tmp_path / "parts")
    stopped.begin()
    count = iter(range(100))
    assert not stopped.fit(should_stop=lambda: next(count) > 7)
    going_on = Trainer(TASK, model, SETTINGS.changed(epochs=40, patience=6), tmp_path / "parts")
    going_on.resume()
    assert going_on.fit()
    run = going_on.runs[0]
    assert run.result == whole.result
    assert all(torch.equal(value, whole.best[name]) for name, value in run.best.items())
    ended = Trainer(TASK, model, SETTINGS.changed(epochs=40, patience=6), tmp_path / "parts")
    ended.resume()
    assert ended.fit()
    assert len(ended.runs[0].history) == len(whole.history)


def test_patience_needs_a_validation_part(tmp_path):
    task = ArrayTask(*sequences(30), validation=0)
    with pytest.raises(UserError, match="has no validation"):
        trained(tmp_path / "run", task, patience=3)


def test_training_without_validation_and_test(tmp_path):
    task = ArrayTask(*sequences(30), validation=0, test=0)
    run = trained(tmp_path / "run", task, epochs=2).runs[0]
    assert run.history[-1].error is None
    assert (tmp_path / "run" / "learning_curve.png").exists()


def test_a_budget_counts_only_real_steps(tmp_path):
    """Each sequence's own openness, without padding, whatever the batch."""
    population = Population(TASK, model(), SETTINGS.changed(budget=1.0))
    layer = population.models[0].layer
    found = population.test("validation")[0]
    lengths = [len(one) for one in TASK.sequences["validation"].x]
    tables = [layer.openness(length).detach() for length in lengths]
    expected = sum(float(k.sum()) for k in tables) / sum(k.numel() for k in tables)
    assert found.mean_k == pytest.approx(expected, rel=1e-5)
    before = found.mean_k
    for epoch in range(1, 9):
        population.train(epoch)
    after = population.test("validation")[0].mean_k
    assert after is not None
    assert before is not None
    assert after < before


def test_with_a_budget_the_best_epoch_is_open_less(tmp_path):
    run = trained(tmp_path / "run", budget=3.0, epochs=30).runs[0]
    charged = [(row.validation_loss or 0) + 3.0 * (row.mean_k or 0) for row in run.history]
    assert run.best_row.epoch == charged.index(min(charged)) + 1


@pytest.mark.parametrize("threshold", [0.0, 0.2])
def test_times_of_their_own_and_a_threshold(tmp_path, threshold):
    trainer = Trainer(OWN_TIMES, lambda: model(OWN_TIMES, threshold=threshold), SETTINGS.changed(budget=0.1), tmp_path)
    trainer.begin()
    trainer.fit()
    assert trainer.runs[0].history[-1].train_loss < trainer.runs[0].history[0].train_loss


def test_one_sequence_at_a_time_gives_the_same_errors():
    """Padding, lengths and batches change nothing."""
    for task in (TASK, OWN_TIMES):
        network = model(task).eval()
        batch = task.test_samples(slice(0, task.test_size))
        together = network(batch.x, **batch.arguments())
        for number, length in enumerate(batch.lengths.tolist()):
            times = None if batch.times is None else batch.times[:length, number]
            alone = network(batch.x[:length, number : number + 1], times=times)
            assert torch.allclose(alone[0], together[number], atol=1e-6)


def test_a_ratio_of_a_gate_moves_at_the_rate_of_the_weights():
    """Phased gates have a share r of a period, which is no time."""
    layer = PLSTM(INPUTS, 6, tau=TASK.span, s=(1.0, TASK.span), r=0.3)
    population = Population(TASK, SequenceModel(layer, linear_head(6, 2)), SETTINGS.changed(lr=0.01, epochs=1))
    population.train(1)
    steps = population.batches
    assert (layer.r_l0 - 0.3).abs().max() <= 1.01 * 0.01 * steps
    assert (layer.s_l0 - layer.gate.draw("s", 6).to(layer.s_l0)).abs().max() > 0.01 * steps


def test_a_run_that_waits_in_vain_does_not_stop_the_others(tmp_path):
    """Killed between two saves, one at the end of its patience, the other an epoch further."""
    settings = [SETTINGS.changed(seed=seed, epochs=60, patience=3, lr=lr) for seed, lr in ((0, 0.02), (1, 0.05))]
    whole = Trainer(TASK, model, settings, [tmp_path / "a", tmp_path / "b"])
    whole.begin()
    whole.fit()
    early = min((0, 1), key=lambda row: len(whole.runs[row].history))
    alone = Trainer(TASK, model, settings[early], tmp_path / "early")
    alone.begin()
    alone.fit()
    folders = [tmp_path / "a", tmp_path / "b"]
    folders[early] = tmp_path / "early"  # its checkpoint is of its own end, epochs before the other's
    again = Trainer(TASK, model, settings, folders)
    again.resume()
    assert again.fit()
    assert [run.result for run in again.runs] == [run.result for run in whole.runs]


def test_of_several_values_the_largest_unit_does_not_decide_alone(tmp_path):
    """The second value is noise, in a unit a million times as large: its error says nothing about learning."""
    draws = np.random.default_rng(3)
    x = draws.normal(size=(60, 8, INPUTS))
    task = ArrayTask(x, np.stack([x[:, 3, 0], 1e6 * draws.normal(size=60)], 1))
    run = trained(tmp_path / "run", task, epochs=30).runs[0]
    losses = [row.validation_loss for row in run.history]
    errors = [row.validation_error for row in run.history]
    assert losses.index(min(losses)) != errors.index(min(errors))
    assert run.best_row.epoch == losses.index(min(losses)) + 1
    assert run.result is not None
    assert run.result["validation_loss"] == min(losses)
    alone = fit(task, lambda: model(task), SETTINGS.changed(epochs=30))
    assert all(torch.equal(value, run.best[name]) for name, value in alone.model.state_dict().items())
    (comparison,) = load_runs([tmp_path / "run"])
    assert "that with the lowest validation loss," in how_chosen(comparison)


def test_of_one_value_the_error_decides(tmp_path):
    draws = np.random.default_rng(3)
    x = draws.normal(size=(60, 8, INPUTS))
    run = trained(tmp_path / "run", ArrayTask(x, x[:, 3, 0]), epochs=8).runs[0]
    errors = [row.validation_error for row in run.history]
    assert run.best_row.epoch == errors.index(min(errors)) + 1

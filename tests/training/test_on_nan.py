"""Numbers that go wrong: one network stops before it, or leaves that update out; others do not notice."""

import json

import pytest
import torch
from torch import nn

from glstm.data.adding import Adding
from glstm.errors import UserError
from glstm.recipes import make_task, model_maker
from glstm.training.loop import Trainer
from glstm.training.run import RunFolder
from small_runs import SMALL, StopAfter, results

SEED, POISONED = 7, [(1, 2), (2, 4)]  # batches, from 0, of these epochs
SKIP = SMALL.changed(seed=SEED, on_nan="skip")


class Poisoned(Adding):
    """The adding task, in which some batches of one seed are nan."""

    def stage(self, seed, epoch):
        parts = super().stage(seed, epoch)
        for at, batch in POISONED:
            if seed == SEED and epoch == at:
                parts[0][:, 16 * batch : 16 * batch + 16].fill_(torch.nan)
        return parts


def trainer_for(recipes, paths, kind=Poisoned):
    task = kind(**recipes[0].data)
    return Trainer(task, [model_maker(recipe, task) for recipe in recipes], recipes, paths)


def begun(recipes, paths, kind=Poisoned):
    trainer = trainer_for(recipes, paths, kind)
    trainer.begin()
    return trainer


def test_it_stops_with_the_update_and_the_parameter_and_keeps_what_was_saved(tmp_path):
    folder = RunFolder(tmp_path / "run")
    trainer = begun([SMALL.changed(seed=SEED)], [folder])
    before = folder.checkpoint.read_bytes()
    values = {name: value.clone() for name, value in trainer.runs[0].model.state_dict().items()}
    with pytest.raises(UserError) as error:
        trainer.fit()
    said = str(error.value)
    assert "in epoch 1, batch 3 (update 3), the loss was nan, and the gradient of layer.weight_ih_l0 was" in said
    assert "what was saved before epoch 1, batch 1 is intact" in said
    assert f"--resume {folder.path} --on-nan skip goes on" in said
    assert folder.checkpoint.read_bytes() == before
    now = trainer.runs[0].model.state_dict()
    assert all(value.isfinite().all() for value in now.values())
    assert any(not torch.equal(value, values[name]) for name, value in now.items())  # two updates were made


def test_a_stopped_run_goes_on_by_skipping_as_if_it_had_from_the_start(tmp_path):
    begun([SKIP], [tmp_path / "whole"]).fit()
    with pytest.raises(UserError, match="training diverged"):
        begun([SKIP.changed(on_nan="stop")], [tmp_path / "run"]).fit()
    trainer = trainer_for([SKIP], [tmp_path / "run"])
    trainer.resume()
    assert trainer.fit()
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["on_nan"] == "skip"


def test_skipped_updates_are_counted_and_change_nothing(tmp_path):
    trainer = begun([SKIP], [tmp_path / "run"])
    assert not trainer.fit(should_stop=StopAfter(2))
    population = trainer.population
    kept = [tensor.clone() for tensor in (population.stack.flat, *population.optimizer.state.values())]
    assert not trainer.fit(should_stop=StopAfter(1))  # the third batch
    now = (population.stack.flat, *population.optimizer.state.values())
    assert all(torch.equal(old, new) for old, new in zip(kept, now, strict=True))
    assert trainer.fit()
    (run,) = trainer.runs
    assert [row.left_out for row in run.history] == [1, 1, 0]
    assert all(torch.isfinite(torch.tensor(row.train_loss)) for row in run.history)
    assert [row.batch for row in run.losses if row.epoch == 1] == [1, 2, 4, 5]


def test_stopping_beside_a_skipped_update_leaves_the_same_bits(tmp_path):
    begun([SKIP], [tmp_path / "whole"]).fit()
    for batches in (2, 3, 4):
        path = tmp_path / str(batches)
        begun([SKIP], [path]).fit(should_stop=StopAfter(batches))
        trainer = trainer_for([SKIP], [path])
        trainer.resume()
        assert trainer.fit()
        assert results(path) == results(tmp_path / "whole")


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_others_of_a_population_do_not_notice(tmp_path, on_nan):
    other = SMALL.changed(seed=1)
    begun([other], [tmp_path / "alone"]).fit()
    trainer = begun([SKIP.changed(on_nan=on_nan), other], [tmp_path / "bad", tmp_path / "good"])
    if on_nan == "stop":
        with pytest.raises(UserError, match=r"bad \(seed 7\): in epoch 1, batch 3 .*; the other 1 are finished"):
            trainer.fit()
    else:
        assert trainer.fit()
        begun([SKIP], [tmp_path / "bad-alone"]).fit()
        assert results(tmp_path / "bad") == results(tmp_path / "bad-alone")
    assert results(tmp_path / "good") == results(tmp_path / "alone")


def test_running_statistics_are_not_spoilt_by_a_skipped_update(tmp_path):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.BatchNorm1d(2), nn.Linear(2, 1)

        def forward(self, x):
            return self.out(self.norm(x.mean(0)))

    task = Poisoned(**SMALL.data)
    trainer = Trainer(task, Normed, SKIP, tmp_path / "run")
    trainer.begin()
    assert trainer.fit()
    (run,) = trainer.runs
    assert run.model.norm.running_var.isfinite().all()
    assert run.model.norm.num_batches_tracked == 3 * 5 - 2


def test_an_epoch_without_any_update_ends_the_run(tmp_path):
    class Hopeless(Adding):
        def stage(self, seed, epoch):
            parts = super().stage(seed, epoch)
            parts[0].fill_(torch.inf)
            return parts

    with pytest.raises(UserError, match=r"in epoch 1, no update was possible: training diverged"):
        begun([SKIP], [tmp_path / "run"], Hopeless).fit()


def test_a_value_that_an_update_makes_too_large_is_named(tmp_path):
    recipe = SMALL.changed(optimizer="sgd", lr=1e30, clip=0.0)
    task = make_task(recipe)
    trainer = Trainer(task, model_maker(recipe.changed(lr=1.0), task), recipe.changed(lr=3e38), tmp_path / "run")
    trainer.begin()
    with pytest.raises(UserError, match=r"batch 1 \(update 1\).* (layer|head)\.\S+ was the first that was"):
        trainer.fit()

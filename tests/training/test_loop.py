"""The loop: it learns, it stops and goes on without a trace, it says when it cannot."""

import copy
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from glstm import gate_parameters, weight_parameters
from glstm.errors import UserError
from glstm.recipes import Recipe, make_task, model_maker
from glstm.training.display import Display
from glstm.training.evaluate import cost
from glstm.training.loop import Trainer
from glstm.training.run import RunFolder
from small_runs import RECIPES, SMALL, StopAfter, go_on, population, results, start


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_stopping_anywhere_leaves_the_same_final_bits(recipe, tmp_path):
    whole = start(recipe, tmp_path / "whole")
    assert whole.fit()
    expected = results(tmp_path / "whole")
    for stops in ([1], [2, 1, 4], [5], [6, 1, 1, 1, 1]):  # five batches an epoch; checks at its end count too
        path = tmp_path / "-".join(map(str, stops))
        trainer = start(recipe, path)
        for batches in stops:
            assert not trainer.fit(should_stop=StopAfter(batches))
            trainer = go_on(recipe, path)
        assert trainer.fit()
        assert results(path) == expected


def test_a_killed_run_goes_on_from_its_last_save(tmp_path):
    recipe = RECIPES["RMSProp, Drop-Connect"]
    start(recipe, tmp_path / "whole").fit()
    trainer = start(recipe, tmp_path / "killed")
    trainer.fit(should_stop=StopAfter(3))
    shutil.copytree(tmp_path / "killed", tmp_path / "as-it-was")
    go_on(recipe, tmp_path / "killed").fit(should_stop=StopAfter(4))  # this work is lost
    shutil.rmtree(tmp_path / "killed")
    shutil.copytree(tmp_path / "as-it-was", tmp_path / "killed")
    go_on(recipe, tmp_path / "killed").fit()
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


def test_a_run_killed_before_its_first_batch_can_go_on(tmp_path):
    start(SMALL, tmp_path / "whole").fit()
    start(SMALL, tmp_path / "killed")
    go_on(SMALL, tmp_path / "killed").fit()
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


def test_more_epochs_can_be_added_to_a_finished_run(tmp_path):
    start(SMALL.changed(epochs=5), tmp_path / "five").fit()
    start(SMALL, tmp_path / "more").fit()
    go_on(SMALL.changed(epochs=5), tmp_path / "more").fit()
    assert results(tmp_path / "more") == results(tmp_path / "five")


def test_epochs_that_cannot_be_are_refused(tmp_path):
    start(SMALL, tmp_path / "run").fit()
    with pytest.raises(UserError, match="trained for 3 epochs already: --epochs 2 is less"):
        go_on(SMALL.changed(epochs=2), tmp_path / "run")
    recipe = RECIPES["curriculum"]
    start(recipe, tmp_path / "opened").fit()
    with pytest.raises(UserError, match="has opened its gates: its epochs cannot change now"):
        go_on(recipe.changed(epochs=9), tmp_path / "opened")
    start(recipe, tmp_path / "not-yet").fit(should_stop=StopAfter(8))
    go_on(recipe.changed(epochs=4), tmp_path / "not-yet").fit()
    start(recipe.changed(epochs=4), tmp_path / "four").fit()
    assert results(tmp_path / "not-yet") == results(tmp_path / "four")


def test_a_schedule_that_has_begun_keeps_its_length(tmp_path):
    start(SMALL.changed(schedule="cosine"), tmp_path / "run").fit(should_stop=StopAfter(6))
    with pytest.raises(UserError, match=r"the cosine schedule of .* has begun: its epochs cannot change now"):
        go_on(SMALL.changed(schedule="cosine", epochs=5), tmp_path / "run")


def test_an_epoch_is_told_of_even_if_it_was_the_last_before_a_stop(tmp_path):
    told = []

    class Listen(Display):
        def epoch(self, rows):
            told.append(rows[0].epoch)

    trainer = start(SMALL, tmp_path / "run")
    assert not trainer.fit(Listen(), StopAfter(6))
    assert told == [row.epoch for row in trainer.runs[0].history] == [1]


def test_logged_openness_is_that_of_evaluation(tmp_path):
    """In training the Phased LSTM leaks, so every gate is a little open."""
    trainer = start(RECIPES["PLSTM"].changed(epochs=1), tmp_path / "run")
    trainer.fit()
    assert trainer.runs[0].history[0].open_share == cost(trainer.runs[0].model.layer, 12).open_share < 1
    assert trainer.runs[0].model.layer.openness(12).gt(0).float().mean() > trainer.runs[0].history[0].open_share


def test_it_learns_and_tells_about_it(tmp_path):
    seen = []

    class Listen(Display):
        def batch(self, epoch, index, count):
            seen.append(("batch", epoch, index, count))

        def epoch(self, rows):
            seen.append(("epoch", rows[0].epoch))

        def stop(self):
            seen.append(("stop",))

    trainer = start(SMALL.changed(epochs=60, lr=0.02), tmp_path / "run")
    trainer.fit(Listen())
    trainer.finish()
    history = trainer.runs[0].history
    assert history[-1].train_loss < 0.5 * history[0].train_loss
    errors = [row.error or 0.0 for row in history]
    assert errors[-1] < 0.5 * errors[0]
    assert seen[:6] == [("batch", 1, n, 5) for n in (1, 2, 3, 4, 5)] + [("epoch", 1)]
    assert seen[-1] == ("stop",)
    assert len(seen) == 60 * 6 + 1
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.json", "metrics.csv", "losses.csv", "model.safetensors", "checkpoint.safetensors",
                     "learning_curve.png", "gates.png", "saved", ".lock"}  # fmt: skip


def test_reported_losses_are_means_over_the_samples_they_cover(tmp_path):
    """Batches of 16, 16, 16, 16 and 6: the last one counts for less."""
    trainer = start(SMALL.changed(epochs=1, lr=1e-30, gate_lr=0.0), tmp_path / "run")
    trainer.fit()
    task, model = trainer.task, trainer.runs[0].model.eval()
    with torch.no_grad():
        losses = torch.cat([task.losses(model(x), y) for x, y in task.batches("train", 16, 0, 1)])
        tests = torch.cat([task.errors(model(x), y) for x, y in task.batches("test", 7)])
    assert len(losses) == 70
    assert trainer.runs[0].history[0].train_loss == pytest.approx(losses.mean().item(), rel=1e-6)
    assert trainer.runs[0].history[0].test_error == pytest.approx(tests.mean().item(), rel=1e-6)
    assert trainer.runs[0].losses[-1].loss == pytest.approx(losses[64:].mean().item(), rel=1e-6)


def test_the_curriculum_moves_once_an_epoch_and_opens_at_the_end(tmp_path):
    recipe = RECIPES["curriculum"].changed(epochs=4, rho=1.0, alpha=0.5)
    sigmas = []

    class Watch(Display):
        def epoch(self, rows):
            sigmas.append(trainer.runs[0].model.layer.sigma_l0.unique().tolist())

    trainer = start(recipe, tmp_path / "run")
    trainer.fit(Watch())
    assert sigmas == [[2.0], [3.0], [4.5], [5000.0]]


def test_a_gate_rate_of_zero_freezes_the_gate(tmp_path):
    trainer = start(SMALL.changed(gate_lr=0.0, epochs=1), tmp_path / "run")
    before = trainer.runs[0].model.layer.mu_l0.detach().clone()
    trainer.fit()
    assert torch.equal(trainer.runs[0].model.layer.mu_l0, before)
    assert not trainer.runs[0].model.layer.mu_l0.requires_grad


def test_weights_are_clipped_and_gates_are_not():
    recipe = SMALL.changed(optimizer="sgd", lr=1.0, gate_lr=1.0, clip=1e-6)
    found = population([recipe], precision="64-true")
    before = copy.deepcopy(found.models[0])
    found.start(1)
    found.step()
    moved = [
        torch.cat([(old - new).flatten() for old, new in zip(of(before), of(found.models[0]), strict=True)]).norm()
        for of in (weight_parameters, gate_parameters)
    ]
    assert moved[0].item() == pytest.approx(1e-6, rel=1e-3)
    assert moved[1] > 1e-5


@pytest.mark.parametrize("stop", [False, True])
def test_divergence_is_said_and_the_last_good_state_kept(tmp_path, stop):
    trainer = start(SMALL.changed(optimizer="sgd", lr=1e30, clip=0.0, data={"train_size": 600}), tmp_path / "run")
    with pytest.raises(UserError, match="training diverged; lower lr"):
        trainer.fit(should_stop=StopAfter(2) if stop else lambda: False)
    kept = load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert all(tensor.isfinite().all() for tensor in kept.values() if tensor.is_floating_point())


def test_a_permutation_is_kept_with_the_run_and_checked(real_mnist, tmp_path):
    recipe = Recipe("pmnist", units=2, data={"train_size": 4, "test_size": 4}, batch=4, epochs=1)
    folder, task = RunFolder(tmp_path / "run"), make_task(recipe, real_mnist)
    trainer = Trainer(task, model_maker(recipe, task), recipe, folder)
    trainer.begin()
    saved = folder.path / "permutation.json"
    assert len(set(json.loads(saved.read_text())["order"])) == 784
    folder.check_artifacts(trainer.task)
    saved.write_text(saved.read_text().replace("1784", "1785"))
    with pytest.raises(UserError, match="differs from what this version"):
        trainer.resume()

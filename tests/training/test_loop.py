"""The loop: it learns, it stops and goes on without a trace, it says when it cannot."""

import csv
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from glstm.errors import UserError
from glstm.training.display import Display
from glstm.training.evaluate import cost
from glstm.training.fabric import make_fabric
from glstm.training.loop import Trainer
from glstm.training.recipe import Recipe
from glstm.training.run import RunFolder

SMALL = Recipe("adding", steps=12, units=6, mu=(1.0, 12.0), sigma=4.0, optimizer="adam", lr=5e-3, gate_lr=0.1,
               train_size=70, test_size=30, batch=16, epochs=3)  # fmt: skip
RECIPES = {
    "thrifty g-LSTM": SMALL.changed(budget=0.5, threshold=0.05),
    "RMSProp, Drop-Connect": SMALL.changed(optimizer="rmsprop", decay=0.5, head="deep"),
    "curriculum": SMALL.changed(curriculum=True, open_epochs=1, sigma=2.0),
    "PLSTM": SMALL.changed(cell="plstm", tau=12.0, s=(0.0, 6.0), r=0.5),
    "LSTM": SMALL.changed(cell="lstm", optimizer="sgd", lr=0.1, init="xavier"),
}


def start(recipe: Recipe, path) -> Trainer:
    trainer = Trainer(recipe, RunFolder(path), make_fabric("cpu"))
    trainer.begin(device="cpu")
    return trainer


def go_on(recipe: Recipe, path) -> Trainer:
    torch.manual_seed(99)  # whatever the process did before must not matter
    trainer = Trainer(recipe, RunFolder(path), make_fabric("cpu"))
    trainer.resume()
    return trainer


class StopAfter:
    """Asks to stop after so many batches."""

    def __init__(self, batches: int):
        self.left = batches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


def results(path):
    """Everything a run leaves that must not depend on when it was stopped."""
    with (path / "metrics.csv").open() as file:
        rows = [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]
    return (path / "model.safetensors").read_bytes(), rows, (path / "losses.csv").read_text()


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


def test_an_epoch_is_told_of_even_if_it_was_the_last_before_a_stop(tmp_path):
    told = []

    class Listen(Display):
        def epoch(self, row):
            told.append(row.epoch)

    trainer = start(SMALL, tmp_path / "run")
    assert not trainer.fit(Listen(), StopAfter(6))
    assert told == [row.epoch for row in trainer.history] == [1]


def test_logged_openness_is_that_of_evaluation(tmp_path):
    """In training the Phased LSTM leaks, so every gate is a little open."""
    trainer = start(RECIPES["PLSTM"].changed(epochs=1), tmp_path / "run")
    trainer.fit()
    assert trainer.history[0].open_share == cost(trainer.layer, 12).open_share < 1
    assert trainer.layer.openness(12).gt(0).float().mean() > trainer.history[0].open_share


def test_it_learns_and_tells_about_it(tmp_path):
    seen = []

    class Listen(Display):
        def batch(self, epoch, index, count):
            seen.append(("batch", epoch, index, count))

        def epoch(self, row):
            seen.append(("epoch", row.epoch))

        def stop(self):
            seen.append(("stop",))

    trainer = start(SMALL.changed(epochs=30, lr=0.02), tmp_path / "run")
    trainer.fit(Listen())
    trainer.finish()
    history = trainer.history
    assert history[-1].train_loss < 0.5 * history[0].train_loss
    assert history[-1].test_error < 0.5 * history[0].test_error
    assert seen[:6] == [("batch", 1, n, 5) for n in (1, 2, 3, 4, 5)] + [("epoch", 1)]
    assert seen[-1] == ("stop",)
    assert len(seen) == 30 * 6 + 1
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.json", "metrics.csv", "losses.csv", "model.safetensors", "checkpoint.safetensors",
                     "learning_curve.png", "gates.png"}  # fmt: skip


def test_reported_losses_are_means_over_the_samples_they_cover(tmp_path):
    """Batches of 16, 16, 16, 16 and 6: the last one counts for less."""
    trainer = start(SMALL.changed(epochs=1, lr=1e-30, gate_lr=0.0), tmp_path / "run")
    trainer.fit()
    task, model = trainer.task, trainer.model.eval()
    with torch.no_grad():
        losses = torch.cat([task.losses(model(x), y) for x, y in task.batches("train", 16, 0, 1)])
        tests = torch.cat([task.errors(model(x), y) for x, y in task.batches("test", 7)])
    assert len(losses) == 70
    assert trainer.history[0].train_loss == pytest.approx(losses.mean().item(), rel=1e-6)
    assert trainer.history[0].test_error == pytest.approx(tests.mean().item(), rel=1e-6)
    assert trainer.losses[-1].loss == pytest.approx(losses[64:].mean().item(), rel=1e-6)


def test_the_curriculum_moves_once_an_epoch_and_opens_at_the_end(tmp_path):
    recipe = RECIPES["curriculum"].changed(epochs=4, rho=1.0, alpha=0.5)
    sigmas = []

    class Watch(Display):
        def epoch(self, row):
            sigmas.append(trainer.layer.sigma_l0.unique().tolist())

    trainer = start(recipe, tmp_path / "run")
    trainer.fit(Watch())
    assert sigmas == [[2.0], [3.0], [4.5], [5000.0]]


def test_a_gate_rate_of_zero_freezes_the_gate(tmp_path):
    trainer = start(SMALL.changed(gate_lr=0.0, epochs=1), tmp_path / "run")
    before = trainer.layer.mu_l0.detach().clone()
    trainer.fit()
    assert torch.equal(trainer.layer.mu_l0, before)
    assert not trainer.layer.mu_l0.requires_grad


def test_weights_are_clipped_and_gates_are_not(tmp_path):
    trainer = start(SMALL.changed(clip=1e-6), tmp_path / "run")
    trainer._step(*trainer.task.batch("train", 16, 0, 1, 0))
    total = torch.stack([weight.grad.norm() for weight in trainer.weights]).norm()
    assert total.item() == pytest.approx(1e-6, rel=1e-3)
    assert trainer.layer.mu_l0.grad.norm() > 1e-5


@pytest.mark.parametrize("stop", [False, True])
def test_divergence_is_said_and_the_last_good_state_kept(tmp_path, stop):
    trainer = start(SMALL.changed(optimizer="sgd", lr=1e30, clip=0.0, train_size=600), tmp_path / "run")
    with pytest.raises(UserError, match="training diverged; lower lr"):
        trainer.fit(should_stop=StopAfter(2) if stop else lambda: False)
    kept = load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert all(tensor.isfinite().all() for tensor in kept.values() if tensor.is_floating_point())


def test_a_permutation_is_kept_with_the_run_and_checked(real_mnist, tmp_path):
    recipe = Recipe("pmnist", units=2, train_size=4, test_size=4, batch=4, epochs=1)
    folder = RunFolder(tmp_path / "run")
    trainer = Trainer(recipe, folder, make_fabric("cpu"), real_mnist)
    trainer.begin()
    saved = folder.path / "permutation.json"
    assert len(set(json.loads(saved.read_text())["order"])) == 784
    folder.check_artifacts(trainer.task)
    saved.write_text(saved.read_text().replace("1784", "1785"))
    with pytest.raises(UserError, match="differs from what this version"):
        trainer.resume()

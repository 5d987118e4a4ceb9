"""`SequenceModule` under a real Trainer of Lightning."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning import Trainer
from torch import nn
from torch.utils.data import DataLoader, StackDataset, TensorDataset

import glstm
from glstm import GLSTM, SequenceModel
from glstm.cells.jump import LSTMJump
from glstm.cells.skip import SkipLSTM
from glstm.errors import UserError
from glstm.lightning import SequenceModule, read_batch

STEPS = 10
pytestmark = [
    # Lightning's advice about this machine's cores, rare logs and missing loaders; and what it calls in torch.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),
]


def data(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise (B, T, 1), and the class is the sign of step 3."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(count, STEPS, 1, generator=draws)
    return x, (x[:, 3, 0] > 0).long()


def network(outputs: int = 2, reads: str = "last", **more) -> SequenceModel:
    torch.manual_seed(0)
    layer = GLSTM(1, 8, batch_first=True, mu=(1.0, float(STEPS)), sigma=4.0)
    return SequenceModel(layer, nn.Linear(8, outputs), reads=reads, **more)


def trainer(folder: Path, epochs: int = 2, **more) -> Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(max_epochs=epochs, accelerator="cpu", default_root_dir=folder, **(quiet | more))


def loader(*parts: torch.Tensor, **named: torch.Tensor) -> DataLoader:
    return DataLoader(StackDataset(**named) if named else TensorDataset(*parts), batch_size=16)


def test_trains_validates_tests_and_logs(tmp_path):
    x, y = data()
    module, fit = SequenceModule(network(), lr=0.02), trainer(tmp_path, 30)
    before = module.model.layer.mu_l0.detach().clone()
    fit.fit(module, loader(x, y), loader(x, y))
    figures = {name: float(value) for name, value in fit.callback_metrics.items()}
    assert set(figures) == {
        f"{stage}_{name}" for stage in ("train", "val") for name in ("loss", "accuracy", "openness")
    }
    assert figures["val_accuracy"] > 0.9
    assert figures["val_openness"] == pytest.approx(glstm.budget(module.model, STEPS).item(), rel=1e-5)
    assert not torch.equal(before, module.model.layer.mu_l0)
    (tested,) = fit.test(module, loader(x, y), verbose=False)
    assert tested["test_accuracy"] == pytest.approx(figures["val_accuracy"])


def test_predicts_from_x_alone_or_from_batches(tmp_path):
    x, y = data()
    module = SequenceModule(network())
    from_pairs = torch.cat(trainer(tmp_path).predict(module, loader(x, y)))
    from_x = torch.cat(trainer(tmp_path).predict(module, DataLoader(x, batch_size=16)))
    assert torch.equal(from_pairs, from_x)
    assert from_x.shape == (64, 2)


def test_a_budget_closes_gates(tmp_path):
    x, y = data()
    opens = []
    for budget in (0.0, 5.0):
        fit = trainer(tmp_path, 5)
        fit.fit(SequenceModule(network(), lr=0.02, budget=budget), loader(x, y))
        opens.append(float(fit.callback_metrics["train_openness"]))
    assert opens[1] < opens[0] - 0.02


def test_lengths_and_times_reach_the_model(tmp_path):
    x, y = data()
    lengths = torch.arange(64) % 5 + 6
    times = (torch.rand(64, STEPS, generator=torch.Generator().manual_seed(1)) + 0.1).cumsum(1)
    module = SequenceModule(network()).eval()
    with torch.no_grad():
        expected = module.model(x, times, lengths)
    padded = x.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = 1e3
    batches = loader(x=padded, y=y, times=times, lengths=lengths)
    assert torch.allclose(torch.cat(trainer(tmp_path).predict(module, batches)), expected, atol=1e-6)
    assert not torch.allclose(torch.cat(trainer(tmp_path).predict(module, loader(x, y, lengths))), expected, atol=1e-3)
    shared = SequenceModule(network(), times=times[0])
    assert torch.equal(shared(x), module.model(x, times[0]))
    trainer(tmp_path).fit(module, batches)


@pytest.mark.parametrize("batch_first", [True, False])
def test_every_step_without_padding(batch_first):
    """The loss of predictions for every step is the mean over the steps that count, in both layouts."""
    module = SequenceModule(SequenceModel(GLSTM(1, 4, batch_first=batch_first), nn.Linear(4, 3), reads="every"))
    prediction, y, lengths = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5)), torch.tensor([5, 2])
    by_hand = torch.cat((prediction[0], prediction[1, :2])), torch.cat((y[0], y[1, :2]))
    if not batch_first:
        prediction, y = prediction.transpose(0, 1), y.T
    assert torch.allclose(module.compute_loss(prediction, y, lengths), nn.functional.cross_entropy(*by_hand))
    both = nn.functional.cross_entropy(prediction.flatten(0, 1), y.flatten())
    assert torch.allclose(module.compute_loss(prediction, y), both)


def test_values(tmp_path):
    x, _ = data()
    y = 2 * x[:, 3, 0]
    fit = trainer(tmp_path, 40)
    fit.fit(SequenceModule(network(1), "values", lr=0.02), loader(x, y))
    assert "train_accuracy" not in fit.callback_metrics
    assert fit.callback_metrics["train_loss"] < 0.3 * y.square().mean()


class Own(SequenceModule):
    """What a user would write."""

    def __init__(self, model: nn.Module, margin: float = 0.5, **more):
        super().__init__(model, **more)
        self.margin = margin

    def compute_loss(self, prediction, y, lengths=None):
        return nn.functional.multi_margin_loss(prediction, y, margin=self.margin)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(glstm.parameter_groups(self.model, lr=self.lr, gate_lr=0.0), momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def test_a_subclass_has_its_own_loss_and_optimiser(tmp_path):
    x, y = data()
    module, fit = Own(network(), margin=0.7, lr=0.1), trainer(tmp_path)
    before = [values.detach().clone() for values in glstm.gate_parameters(module.model)]
    fit.fit(module, loader(x, y))
    assert isinstance(fit.optimizers[0], torch.optim.SGD)
    assert [group["lr"] for group in fit.optimizers[0].param_groups] == pytest.approx([0.025, 0.0])
    assert all(torch.equal(*pair) for pair in zip(before, glstm.gate_parameters(module.model), strict=True))


@pytest.mark.parametrize(
    ("kind", "options"),
    [(SequenceModule, {"lr": 0.03, "gate_lr": 0.2, "times": torch.arange(2.0, 2.0 + STEPS)}), (Own, {"margin": 0.7})],
)
def test_checkpoints_are_saved_and_loaded(tmp_path, kind, options):
    x, y = data()
    module, fit = kind(network(), **options), trainer(tmp_path)
    fit.fit(module, loader(x, y))
    fit.save_checkpoint(tmp_path / "own.ckpt")
    again = kind.load_from_checkpoint(tmp_path / "own.ckpt", model=network())
    with torch.no_grad():
        assert torch.equal(again(x), module.eval()(x))
    for name, value in options.items():
        assert torch.equal(torch.as_tensor(getattr(again, name)), torch.as_tensor(value))


def test_a_stopped_fit_goes_on_with_the_same_bits(tmp_path):
    x, y = data()
    whole, fit = SequenceModule(network(), lr=0.02), trainer(tmp_path, 4)
    fit.fit(whole, loader(x, y))
    first = trainer(tmp_path, 2)
    first.fit(SequenceModule(network(), lr=0.02), loader(x, y))
    first.save_checkpoint(tmp_path / "half.ckpt")
    rest = SequenceModule(network(), lr=0.02)
    trainer(tmp_path, 4).fit(rest, loader(x, y), ckpt_path=tmp_path / "half.ckpt")
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), rest.parameters(), strict=True))


def test_any_module_and_any_loss(tmp_path):
    x, y = data()
    module = SequenceModule(nn.Sequential(nn.Flatten(), nn.Linear(STEPS, 2)), nn.functional.cross_entropy, lr=0.02)
    fit = trainer(tmp_path, 5)
    fit.fit(module, loader(x, y))
    assert set(fit.callback_metrics) == {"train_loss"}
    assert fit.callback_metrics["train_loss"] < 0.69


def rates(module: SequenceModule) -> list[float]:
    return [group["lr"] for group in module.configure_optimizers().param_groups]


def test_gates_have_a_rate_of_their_own():
    """lr x the span of the times, in which mu and sigma are stored."""
    assert rates(SequenceModule(network(), lr=1e-3)) == pytest.approx([1e-3, 1e-3 * (STEPS - 1 + 2 * 4.0)], rel=0.2)
    assert rates(SequenceModule(network(), lr=1e-3, gate_lr=0.5)) == [1e-3, 0.5]
    times = torch.arange(1.0, 1.0 + STEPS)
    spanned = rates(SequenceModule(network(), lr=1e-3, times=times))
    assert spanned == [group["lr"] for group in glstm.parameter_groups(network(), lr=1e-3, times=times)]
    assert spanned[1] != rates(SequenceModule(network(), lr=1e-3))[1]
    assert rates(SequenceModule(nn.Linear(2, 2))) == [1e-3]


def test_a_layer_that_has_seen_no_times_asks_for_them(tmp_path):
    x, y = data()

    def unfitted() -> SequenceModel:
        return SequenceModel(GLSTM(1, 8, batch_first=True), nn.Linear(8, 2))

    for gate_lr in (None, 0.1):
        with pytest.raises(UserError, match=r"give SequenceModule times=, or call fit_times"):
            trainer(tmp_path, 1).fit(SequenceModule(unfitted(), gate_lr=gate_lr), loader(x, y))
    fitted = unfitted()
    fitted.layer.fit_times(STEPS)
    for module in (SequenceModule(fitted), SequenceModule(unfitted(), times=torch.arange(1.0, 1.0 + STEPS))):
        trainer(tmp_path, 1).fit(module, loader(x, y))
        layer = module.model.layer
        assert layer.seen.steps == STEPS
        assert rates(module)[1] * layer.unit == pytest.approx(1e-3 * layer.seen.width)


def test_padding_does_not_count_as_openness(tmp_path):
    """Gates around step 2, and sequences of two real steps: they are open all the time."""
    layer = GLSTM(1, 8, batch_first=True, mu=2.0, sigma=1.0)
    module = SequenceModule(SequenceModel(layer, nn.Linear(8, 2)))
    x, y = data()
    (figures,) = trainer(tmp_path).validate(module, loader(x, y, torch.full((64,), 2)), verbose=False)
    assert figures["val_openness"] == pytest.approx(layer.openness(2).mean().item(), rel=1e-5)
    (figures,) = trainer(tmp_path).validate(module, loader(x, y), verbose=False)
    assert figures["val_openness"] == pytest.approx(layer.openness(STEPS).mean().item(), rel=1e-5)


@pytest.mark.parametrize("batch", [torch.ones(3), (1,), {"x": 1}, {"x": 1, "y": 2, "z": 3}])
def test_wrong_batches(batch):
    with pytest.raises(UserError, match="a batch"):
        read_batch(batch)


def test_wrong_options():
    with pytest.raises(UserError, match="loss must be one of classes, values"):
        SequenceModule(network(), "class")
    with pytest.raises(UserError, match="no gates that could close"):
        SequenceModule(nn.Linear(1, 1), budget=1.0)
    with pytest.raises(UserError, match="a LSTMJump adds to the loss of every sample"):
        SequenceModule(SequenceModel(LSTMJump(1, 4), nn.Linear(4, 2)))


def test_a_cell_that_skips_is_charged_for_its_updates(tmp_path):
    x, y = data()
    shares = []
    for budget in (0.0, 20.0):
        torch.manual_seed(0)
        model = SequenceModel(SkipLSTM(1, 8, batch_first=True), nn.Linear(8, 2))
        fit = trainer(tmp_path, 15)
        fit.fit(SequenceModule(model, lr=0.02, budget=budget), loader(x, y))
        shares.append(float(fit.callback_metrics["train_updates"]))
        assert model.layer.share_of_updates is None
    assert shares[1] < 0.8 * shares[0]


def test_times_may_be_numpys(tmp_path):
    x, y = data()
    module = SequenceModule(network(), times=np.arange(1.0, STEPS + 1))
    fit, kept = trainer(tmp_path, 1), tmp_path / "module.ckpt"
    fit.fit(module, loader(x, y))
    fit.save_checkpoint(kept)
    again = SequenceModule.load_from_checkpoint(kept, model=network())
    assert torch.equal(again.times, module.times)

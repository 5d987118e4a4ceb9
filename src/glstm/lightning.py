"""`SequenceModule`: a sequence network for Lightning's Trainer, with the usual losses, logs and optimiser groups. What
differs in your work you override: `compute_loss`, `configure_optimizers`, or any of Lightning's own methods."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from glstm.advice import parameter_groups
from glstm.data.task import Batch
from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.layers import gated_layers
from glstm.times import as_tensor
from glstm.training.objective import mean_openness, skips, take_shares_of_updates

with needed_by("SequenceModule"):
    from lightning import LightningModule

LOSSES = ("classes", "values")


class SequenceModule(LightningModule):
    """Trains any module on batches (x, y), (x, y, lengths), or dicts with x, y and, if there are any, times and
    lengths.

    x is laid out as the model takes it: a DataLoader makes (B, T, D), which is what a layer with `batch_first=True`
    takes.

    It logs loss, accuracy (of classes) and mean openness (of gated layers) or the share of updates (of cells that skip
    steps), each as train_, val_ or test_.

    Load a checkpoint with `SequenceModule.load_from_checkpoint(path, model=model)`: the rest is in it, unless the loss
    is a function of yours, which is given again, too.

    Args:
        model: Any module.
        loss: "classes" (cross-entropy of y, whole numbers), "values" (squared error), or a function of prediction and
            y.
        lr: The learning rate of the weights.
        gate_lr: The gates' own rate, in the unit of the times; None: lr x their span, as in `glstm.parameter_groups`.
        budget: The charge for openness, or for updates.
        times: Those of all batches that bring none.
    """

    model: Any  # a module of any class
    times: Tensor | None

    def __init__(
        self,
        model: nn.Module,
        loss: str | Callable[[Tensor, Tensor], Tensor] = "classes",
        *,
        lr: float = 1e-3,
        gate_lr: float | None = None,
        budget: float = 0.0,
        times: Any = None,
    ):
        super().__init__()
        if not callable(loss) and loss not in LOSSES:
            raise UserError(f"loss must be one of {', '.join(LOSSES)}, or a function, not {loss!r:.50}")
        if budget and not skips(model) and not any(layer.gate.names for layer in gated_layers(model)):
            raise UserError(
                "a budget charges for openness, and this network has no gates that could close, nor does it skip "
                "steps: leave the budget out"
            )
        if wanting := [module for module in model.modules() if hasattr(module, "extra_losses")]:
            raise UserError(
                f"a {type(wanting[0]).__name__} adds to the loss of every sample, which only glstm's own trainer asks "
                "for: train it with glstm.training.Population or glstm train"
            )
        times = None if times is None else as_tensor(times)
        self.save_hyperparameters(ignore=["model"] if isinstance(loss, str) else ["model", "loss"])
        self.model, self.loss = model, loss
        self.lr, self.gate_lr, self.budget = lr, gate_lr, budget
        self.register_buffer("times", times, persistent=False)  # a hyperparameter, and so in a checkpoint already

    def forward(self, x: Tensor, times: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        """The model's prediction; a model that knows no times or lengths is called without, if there are none."""
        times = self.times if times is None else times
        return self.model(x, **Batch(x, x.new_empty(0), times, lengths).arguments())

    def compute_loss(self, prediction: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The batch's mean loss; of predictions for every step, over the steps that count."""
        if not isinstance(self.loss, str):
            return self.loss(prediction, y)
        prediction, y = self._counted(prediction, y, lengths)
        if self.loss == "classes":
            return cross_entropy(prediction, y)
        return (prediction.reshape(y.shape) - y).square().mean()

    def configure_optimizers(self) -> Any:
        """Adam, with the gates at a rate of their own. It must know the span of the times before the first batch."""
        if self.times is None and any(layer.unfitted for layer in gated_layers(self.model)):
            raise UserError(
                "the model's gates fit the times that they see first, and have seen none: give SequenceModule times=, "
                "or call fit_times of the layer before (model.layer.fit_times(784) for 784 steps)"
            )
        groups = parameter_groups(self.model, lr=self.lr, gate_lr=self.gate_lr, times=self.times)
        return torch.optim.Adam(groups)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._step(read_batch(batch), "train")

    def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._step(read_batch(batch), "val")

    def test_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._step(read_batch(batch), "test")

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """A batch may be x alone."""
        if isinstance(batch, Tensor):
            return self(batch)
        found = read_batch(batch)
        return self(found.x, found.times, found.lengths)

    def _step(self, batch: Batch, stage: str) -> Tensor:
        with ExitStack() as stack:
            layers = [layer for layer in gated_layers(self.model) if layer.gate.names]
            recorded = [stack.enter_context(layer.recording_openness()) for layer in layers]
            prediction = self(batch.x, batch.times, batch.lengths)
        loss = self.compute_loss(prediction, batch.y, batch.lengths)
        log = {"on_step": False, "on_epoch": True, "batch_size": batch.x.shape[0 if self._batch_first else 1]}
        self.log(f"{stage}_loss", loss.detach(), prog_bar=True, **log)
        if self.loss == "classes":
            found, y = self._counted(prediction.detach(), batch.y, batch.lengths)
            self.log(f"{stage}_accuracy", (found.argmax(-1) == y).float().mean(), prog_bar=True, **log)
        if tables := [table for own in recorded for table in own]:
            openness = mean_openness(tables, batch.lengths)
            self.log(f"{stage}_openness", openness.detach(), **log)
            if stage == "train" and self.budget:
                loss = loss + self.budget * openness
        elif shares := take_shares_of_updates(self.model):
            updates = torch.stack(shares).mean()
            self.log(f"{stage}_updates", updates.detach(), **log)
            if stage == "train" and self.budget:
                loss = loss + self.budget * updates
        return loss

    @property
    def _batch_first(self) -> bool:
        return bool(getattr(getattr(self.model, "layer", self.model), "batch_first", False))

    def _counted(self, prediction: Tensor, y: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Predictions for every step, and their targets, as one long batch without padding; others as they are."""
        every = prediction.dim() == 3 and y.dim() >= 2
        if not every:
            return prediction, y
        if lengths is None:
            return prediction.flatten(0, 1), y.flatten(0, 1)
        steps = torch.arange(prediction.shape[1 if self._batch_first else 0], device=lengths.device)
        counts = steps < lengths[:, None] if self._batch_first else steps[:, None] < lengths
        return prediction[counts], y[counts]


def read_batch(batch: Any) -> Batch:
    """(x, y), (x, y, lengths), or a dict with x, y and, if there are any, times and lengths. They are laid out as the
    model takes them, with `batch_first=True` not as a task's batches are."""
    if isinstance(batch, Mapping):
        if not {"x", "y"} <= set(batch) <= set(Batch._fields):
            raise UserError(f"a batch that is a dict has x and y, and may have times and lengths, not {list(batch)}")
        return Batch(**batch)
    if isinstance(batch, Sequence) and len(batch) in (2, 3):
        return Batch(batch[0], batch[1], lengths=batch[2] if len(batch) == 3 else None)
    size = f" of {len(batch)}" if isinstance(batch, Sequence) else ""
    raise UserError(f"a batch is (x, y), (x, y, lengths) or a dict, not a {type(batch).__name__}{size}")

"""The training loop: any gated network, any Task, on one device or many through Lightning Fabric."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch
from lightning.fabric import Fabric
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from glstm.errors import UserError
from glstm.layers import gated_layers, weight_parameters
from glstm.training.budget import budget
from glstm.training.build import build_model, build_optimizer, build_task
from glstm.training.checkpoint import load_checkpoint, save_checkpoint, save_model
from glstm.training.curriculum import TemporalCurriculum
from glstm.training.display import Display, EpochRow, LossRow
from glstm.training.evaluate import cost, error_sums, openness_in_use
from glstm.training.recipe import Recipe
from glstm.training.run import RunFolder

SAVE_EVERY = 60.0  # seconds, inside an epoch
SAVE_GAP = 5.0  # seconds at least between two saves at the ends of epochs
LOSS_ROWS = 10  # an epoch


class Trainer:
    """One run. `fit` trains until the recipe's last epoch or until `should_stop` says so, and saves either way."""

    def __init__(self, recipe: Recipe, folder: RunFolder, fabric: Fabric, data: Path | str | None = None):
        self.recipe, self.folder, self.fabric = recipe, folder, fabric
        if recipe.batch % fabric.world_size:
            raise UserError(f"a batch of {recipe.batch} cannot be shared equally by {fabric.world_size} devices")
        with fabric.rank_zero_first():  # where the data must be fetched, one process does it
            self.task = build_task(recipe, data, fabric.device)
        torch.manual_seed(recipe.seed)
        self.model = build_model(recipe, self.task.inputs, self.task.outputs)
        self.layer = gated_layers(self.model)[0]
        self.curriculum = TemporalCurriculum(self.model, recipe.alpha, recipe.rho) if recipe.curriculum else None
        optimizer = build_optimizer(recipe, self.model)
        self.network, self.optimizer = fabric.setup(self.model, optimizer)
        self.weights = list(weight_parameters(self.model))

        self.epoch, self.batch = 1, 0  # the next batch to train on
        self.history: list[EpochRow] = []
        self.losses: list[LossRow] = []
        self.seconds = 0.0  # spent in the present epoch
        self.saved_at = -math.inf
        self.sums = torch.zeros(2, dtype=torch.float64, device=fabric.device)  # loss: epoch, since the last row
        self.gates_before = openness_in_use(self.layer, self.task.steps)[0].float()

    def begin(self, **where: object) -> None:
        """Make the run's folder and save its very start, so that from now on it can be resumed."""
        if self.gates_before.max() < 1e-3:
            raise UserError(
                f"no gate opens within the {self.task.steps} steps of {self.task.name}: its mu lies outside of them"
            )
        if self.fabric.is_global_zero:
            self.folder.create(self.recipe, self.task, where)
        self._save()

    def resume(self) -> None:
        """Go on where the folder's checkpoint stands; of the recipe, only the number of epochs may have changed."""
        self.folder.check_artifacts(self.task)
        before = self.folder.recipe()
        extra, progress = load_checkpoint(self.folder.checkpoint, self.model, self.optimizer)
        self._check_epochs(before, done=len(progress["history"]))
        if self.fabric.is_global_zero:
            self.folder.update_recipe(self.recipe)
        self.epoch, self.batch, self.seconds = progress["epoch"], progress["batch"], progress["seconds"]
        self.history = [EpochRow(**row) for row in progress["history"]]
        self.losses = [LossRow(**row) for row in progress["losses"]]
        self.sums.copy_(extra["sums"])
        self.gates_before.copy_(extra["gates_before"])

    def _check_epochs(self, before: Recipe, done: int) -> None:
        epochs = self.recipe.epochs
        if epochs < done:
            raise UserError(f"{self.folder.path} has been trained for {done} epochs already: --epochs {epochs} is less")
        opened = done > before.epochs - before.open_epochs
        if before.curriculum and opened and epochs != before.epochs:
            raise UserError(f"the curriculum of {self.folder.path} has opened its gates: its epochs cannot change now")

    def fit(self, display: Display | None = None, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """True when the last epoch is done, False when stopped before."""
        display = display if display is not None and self.fabric.is_global_zero else Display()
        display.start(self.recipe, self.task, self.history)
        try:
            while self.epoch <= self.recipe.epochs:
                if not self._train_epoch(display, should_stop):
                    return False
            return True
        finally:
            display.stop()

    def finish(self) -> None:
        """Draw the run's pictures."""
        if self.fabric.is_global_zero:
            self.folder.draw(self.task, self.layer, self.gates_before.numpy(), self.history)

    def _train_epoch(self, display: Display, should_stop: Callable[[], bool]) -> bool:
        recipe, count = self.recipe, self.task.batch_count("train", self.recipe.batch)
        if self.batch == 0:
            self._move_curriculum()
        row_every = math.ceil(count / LOSS_ROWS)
        clock = saved = time.monotonic()
        for x, y in self.task.batches("train", recipe.batch, recipe.seed, self.epoch, self.batch):
            self.sums += self._step(x, y) * len(y)
            self.batch += 1
            if self.batch % row_every == 0 or self.batch == count:
                self._record_loss(display, row_every, count)
            display.batch(self.epoch, self.batch, count)
            now = time.monotonic()
            stop = self._agreed(should_stop()) and self.batch < count
            if stop or now - saved > SAVE_EVERY:
                self.seconds, clock, saved = self.seconds + now - clock, now, now
                self._save()
            if stop:
                return False
        self.seconds += time.monotonic() - clock
        self._end_epoch()
        display.epoch(self.history[-1])
        stop = self._agreed(should_stop())
        if stop or self.epoch > recipe.epochs or time.monotonic() - self.saved_at > SAVE_GAP:
            self._save()
        return not stop or self.epoch > recipe.epochs

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        """One update; returns the batch's mean loss. Each device takes every world-size'th sample."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        losses = self.task.losses(self.network(x[:, rank::world]), y[rank::world])
        loss = losses.sum() * (world / len(y))  # gradients are averaged over devices: this makes it the batch's mean
        objective = loss + self.recipe.budget * budget(self.model, self.task.steps) if self.recipe.budget else loss
        self.optimizer.zero_grad()
        self.fabric.backward(objective)
        if self.recipe.clip:
            clip_grad_norm_(self.weights, self.recipe.clip)
        self.optimizer.step()
        return loss.detach().double()

    def _move_curriculum(self) -> None:
        if self.curriculum is None:
            return
        if self.epoch > self.recipe.epochs - self.recipe.open_epochs:
            self.curriculum.open(self.recipe.open_sigma)
        elif self.epoch > 1:
            self.curriculum.step()

    def _record_loss(self, display: Display, row_every: int, count: int) -> None:
        batches = row_every if self.batch % row_every == 0 else count % row_every
        samples = min(self.batch * self.recipe.batch, self.task.train_size) - (self.batch - batches) * self.recipe.batch
        loss = self._total(self.sums[1], "mean") / samples
        self._require_finite(loss)
        self.sums[1] = 0
        row = LossRow(self.epoch, self.batch, loss)
        self.losses.append(row)
        display.loss(row)

    def _require_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss became {loss} in epoch {self.epoch}: training diverged; lower lr or gate_lr, or clip harder"
            )

    def _end_epoch(self) -> None:
        clock = time.monotonic()
        rank, world = self.fabric.global_rank, self.fabric.world_size
        loss, error = error_sums(self.network, self.task, rank=rank, world=world)
        price = cost(self.layer, self.task.steps)
        row = EpochRow(
            epoch=self.epoch,
            train_loss=self._total(self.sums[0], "mean") / self.task.train_size,
            test_loss=self._total(loss, "sum") / self.task.test_size,
            test_error=self._total(error, "sum") / self.task.test_size,
            mean_k=price.mean_k,
            open_share=price.open_share,
            seconds=self.seconds + time.monotonic() - clock,
        )
        self.history.append(row)
        self.epoch, self.batch, self.seconds = self.epoch + 1, 0, 0.0
        self.sums.zero_()

    def _total(self, value: Tensor, how: str) -> float:
        if self.fabric.world_size > 1:
            return float(cast(Tensor, self.fabric.all_reduce(value.clone(), reduce_op=how)))
        return float(value)

    def _agreed(self, stop: bool) -> bool:
        """Whether any device was asked to stop: all must leave at the same batch."""
        if self.fabric.world_size == 1:
            return stop
        return self._total(torch.tensor(float(stop), device=self.fabric.device), "sum") > 0

    def _save(self) -> None:
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            self._require_finite(math.nan)  # what is saved must be worth going on from
        self.saved_at = time.monotonic()
        sums = self.sums if self.fabric.world_size == 1 else self.fabric.all_reduce(self.sums.clone(), reduce_op="mean")
        if not self.fabric.is_global_zero:
            return
        progress = {
            "epoch": self.epoch,
            "batch": self.batch,
            "seconds": self.seconds,
            "history": [asdict(row) for row in self.history],
            "losses": [asdict(row) for row in self.losses],
        }
        extra = {"sums": cast(Tensor, sums), "gates_before": self.gates_before}
        save_checkpoint(self.folder.checkpoint, self.model, self.optimizer, extra, progress)
        save_model(self.folder.model, self.model)
        self.folder.write_metrics(self.history, self.losses)

"""Networks of one shape that train together, each by its own recipe.

A member ends with the network it would have become alone: its weights, data, masks, rates and clipping depend on its
recipe only. On the CPU that holds to the bit; on CUDA, where the choice of a matrix product's algorithm depends on how
many there are, to rounding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from glstm.data import Task
from glstm.data.task import Stage
from glstm.errors import UserError
from glstm.training.build import build_model
from glstm.training.curriculum import TemporalCurriculum
from glstm.training.evaluate import sums_of
from glstm.training.graph import captured
from glstm.training.optimizers import make_optimizer
from glstm.training.recipe import Recipe, check_together
from glstm.training.stack import Stack, mean_openness

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Score:
    """What a member achieves on the test set, and how open it is there."""

    loss: float
    error: float
    mean_k: float
    open_share: float


class Population:
    """The members' networks (`models`) and everything that changes them; a population of one is the normal case.

    It lives where the task's data lies. On CUDA a step is one graph (`graph=False`: the same, kernel by kernel).
    `fabric` brings other processes that take their share of every batch. `train(epoch)` and `test()` are all there
    is to it; those who must be able to stop go step by step.
    """

    def __init__(
        self,
        recipes: Sequence[Recipe],
        task: Task,
        *,
        precision: str = "32-true",
        graph: bool = True,
        fabric: "Fabric | None" = None,
    ):
        check_together(recipes)
        for recipe in recipes[:1]:
            if recipe.task != task.name or recipe.steps not in (None, task.steps):
                length = "" if recipe.steps is None else f" of {recipe.steps} steps"
                raise UserError(
                    f"the recipes are for {recipe.task}{length}, the task is {task.name} of {task.steps} steps"
                )
        self.recipes, self.task, self.fabric = list(recipes), task, fabric
        self.device, common = task.device, self.recipes[0]
        if common.segment and len(recipes) > 1 and self.device.type == "cuda":
            raise UserError("segment is for one network at a time on CUDA: leave it out, or train one by one")
        self.rank, self.world = (fabric.global_rank, fabric.world_size) if fabric else (0, 1)
        self.batch_size = common.batch
        if self.batch_size % self.world:
            raise UserError(f"a batch of {self.batch_size} cannot be shared equally by {self.world} devices")
        self.batches = task.batch_count("train", self.batch_size)
        self.dtype = torch.float64 if precision == "64-true" else torch.float32
        self.mixed = precision == "bf16-mixed"

        self.models = [self._build(recipe) for recipe in self.recipes]
        self.curricula = [
            TemporalCurriculum(model, recipe.alpha, recipe.rho) if recipe.curriculum else None
            for recipe, model in zip(self.recipes, self.models, strict=True)
        ]
        self.stack = Stack(self.models, [recipe.seed for recipe in self.recipes], task.steps)
        values = self.stack.flat.detach()
        self.optimizer = make_optimizer(self.recipes, values)
        self.rates = torch.zeros_like(values)
        self.clipped = any(recipe.clip for recipe in self.recipes)
        self.clip = values.new_tensor([[recipe.clip or torch.inf] for recipe in self.recipes])
        # Where some gates learn and others are frozen, these have a gradient like all; it must not even be remembered.
        frozen = [recipe.curriculum or recipe.gate_lr == 0 for recipe in self.recipes]
        self.frozen = torch.tensor(frozen, device=self.device).unsqueeze(1) if any(frozen) and not all(frozen) else None
        self.charged = any(recipe.budget for recipe in self.recipes)
        self.budgets = values.new_zeros(len(self.models))
        self.sums = torch.zeros(len(self.models), 2, dtype=torch.float64, device=self.device)
        self.next_batch = torch.zeros((), dtype=torch.int64, device=self.device)
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)  # since the very first
        self.batch = 0  # as `next_batch`, for the host
        self.moved_to: int | None = None  # the epoch for which the curricula have moved
        self.stage: Stage = ()
        self._held: Stage | None = None
        self.one_graph = graph and self.device.type == "cuda" and self.world == 1
        self._graphs: dict[int, Callable[[], None]] = {}

    def _build(self, recipe: Recipe):
        torch.manual_seed(recipe.seed)
        return build_model(recipe, self.task.inputs, self.task.outputs).to(self.device, self.dtype)

    def train(self, epoch: int) -> list[float]:
        """A whole epoch, counted from 1; returns each member's mean loss."""
        self.start(epoch)
        while self.batch < self.batches:
            self.step()
        return [total / self.task.train_size for total in self.sums[:, 0].tolist()]

    def start(self, epoch: int, batch: int = 0) -> None:
        """Go to a batch of an epoch; at its first one the sums of losses begin anew, and curricula move on."""
        if not 1 <= epoch <= self.recipes[0].epochs:
            raise UserError(
                f"epochs count from 1 to the recipes' {self.recipes[0].epochs}, and {epoch} is none of them"
            )
        self.batch = batch
        self.next_batch.fill_(batch)
        self.updates.fill_((epoch - 1) * self.batches + batch)
        if batch == 0:
            self.sums.zero_()
        if batch == 0 and epoch != self.moved_to:
            self._move_curricula(epoch)
            self.moved_to = epoch
        self._fill_stage(epoch)
        weights = self.stack.weights
        for row, recipe in enumerate(self.recipes):
            share = recipe.rate_share(epoch)
            self.rates[row, :weights] = share * recipe.lr
            self.rates[row, weights:] = 0.0 if recipe.curriculum else share * recipe.gate_lr
        self.budgets.copy_(self.budgets.new_tensor([recipe.budget_in(epoch) for recipe in self.recipes]))

    def _move_curricula(self, epoch: int) -> None:
        for recipe, curriculum in zip(self.recipes, self.curricula, strict=True):
            if curriculum is None:
                continue
            if epoch > recipe.epochs - recipe.open_epochs:
                curriculum.open(recipe.open_sigma)
            elif epoch > 1:
                curriculum.step()

    def _fill_stage(self, epoch: int) -> None:
        """The epoch's data, into the tensors that held the last one's: graphs read them where they are.

        For the adding task that is a whole epoch of sequences for each seed: 80 MB at 5000 of 2000 steps.
        """
        seeds = [recipe.seed for recipe in self.recipes]
        seeds = seeds[:1] if len(set(seeds)) == 1 else seeds  # one stage where all read the same
        for row, seed in enumerate(seeds):
            fresh = self.task.stage(seed, epoch)
            if self._held is None:
                self._held = tuple(part.new_empty(len(seeds), *part.shape) for part in fresh)
            for held, part in zip(self._held, fresh, strict=True):
                held[row].copy_(part)
        assert self._held is not None
        self.stage = self._held if len(seeds) > 1 else tuple(held[0] for held in self._held)

    def step(self) -> None:
        """One update of every member, on the next batch."""
        first = self.batch * self.batch_size
        size = min(self.batch_size, self.task.train_size - first)
        if not self.one_graph:
            self._update(slice(first, first + size))
        else:
            if size not in self._graphs:  # the last batch of an epoch may be smaller
                self._graphs[size] = captured(lambda: self._update(self._next(size)), self._changing())
            self._graphs[size]()
        self.batch += 1

    def wait(self) -> None:
        """Until the device has done what it was told: a clock read before that tells nothing."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _next(self, size: int) -> Tensor:
        """The numbers of the next batch's samples, counted on the device."""
        return self.next_batch * self.batch_size + torch.arange(size, device=self.device)

    def _changing(self) -> list[Tensor]:
        """Everything that an update changes."""
        return [self.stack.flat, *self.optimizer.state.values(), self.sums, self.next_batch, self.updates]

    def _update(self, wanted: slice | Tensor) -> None:
        x, y = self.task.cut(self.stage, wanted)
        size = y.shape[-1]
        x, y = x[..., self.rank :: self.world, :].to(self.dtype), y[..., self.rank :: self.world]
        losses, charges = [], []
        for (group, values), own_x, own_y in zip(self.stack, self.stack.own(x, 3), self.stack.own(y, 1), strict=True):
            with self._autocast():
                tables = group.tables(values, training=True)
                prediction = group.predict(values, tables, own_x, self.updates)
            losses.append(self.task.losses(prediction.to(self.dtype), own_y).sum(-1))
            if self.charged:
                charges.append(mean_openness(tables))
        loss = _members(losses) * (self.world / size)  # gradients are averaged over processes: this is the batch's mean
        objective = loss + self.budgets * _members(charges) if self.charged else loss
        (gradient,) = torch.autograd.grad(objective.sum(), self.stack.flat)
        with torch.no_grad():
            self._apply(gradient)
            self.sums += (loss.double() * size).unsqueeze(1)
            self.next_batch += 1

    def _apply(self, gradient: Tensor) -> None:
        gradient = self.over_processes(gradient, "mean")
        if self.frozen is not None:
            gradient[:, self.stack.weights :].masked_fill_(self.frozen, 0)
        if self.clipped:
            weights = gradient[:, : self.stack.weights]
            weights *= (self.clip / (_norms(weights) + 1e-6)).clamp(max=1.0)  # torch's clip_grad_norm_, row by row
        self.updates += 1
        self.optimizer.step(self.stack.flat, gradient, self.rates, self.updates)

    def over_processes(self, value: Tensor, how: str) -> Tensor:
        """The sum or mean of what all processes have; of one process, what it has."""
        if self.fabric is None or self.world == 1:
            return value
        return cast(Tensor, self.fabric.all_reduce(value.clone(), reduce_op=how))

    def _autocast(self):
        # Every weight is cast once a step, so there is nothing to keep; and kept casts do not go with graphs.
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed, cache_enabled=False)

    @torch.no_grad()
    def test(self) -> list[Score]:
        """Every member on the whole test set."""
        groups = [(group, values, group.tables(values, training=False)) for group, values in self.stack]

        def predict(x: Tensor) -> Tensor:
            with self._autocast():
                parts = [group.predict(values, tables, x.to(self.dtype)) for group, values, tables in groups]
            return parts[0].to(self.dtype) if len(parts) == 1 else torch.stack(parts).to(self.dtype)

        losses, errors = sums_of(predict, self.task, rank=self.rank, world=self.world)
        sums = self.over_processes(torch.stack((losses, errors)).view(2, -1), "sum")
        k = torch.cat([torch.stack(list(tables.values()), -3).flatten() for _, _, tables in groups])
        found = torch.cat((sums / self.task.test_size, _openness(k.view(len(self.models), -1))))
        return [Score(*figures) for figures in found.T.tolist()]


def _members(parts: list[Tensor]) -> Tensor:
    """One number for each member (M,), from what each group found."""
    return parts[0].view(-1) if len(parts) == 1 else torch.stack(parts)


def _openness(rows: Tensor) -> Tensor:
    """Each row's mean, and its share above 0: (2, M). Row by row: many at once are not added up in the same order."""
    return torch.stack([torch.stack((row.double().mean(), row.gt(0).double().mean())) for row in rows], 1)


def _norms(rows: Tensor) -> Tensor:
    """Each row's norm (M, 1); on the CPU row by row, too, to be what it is alone."""
    if rows.device.type == "cpu":
        return torch.stack([row.norm() for row in rows]).unsqueeze(1)
    return rows.norm(dim=1, keepdim=True)

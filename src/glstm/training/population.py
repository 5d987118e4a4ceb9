"""Networks that train together, each by its own settings.

A member ends with the same network as if it had trained alone: its weights, data, masks, rates and clipping depend on
its settings only. On the CPU the bits are the same. On CUDA they are the same up to rounding, because the algorithm of
a matrix product depends on the number of networks. (torch's own dropout is drawn for all members at once on CUDA, so it
depends on which networks train together.)
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from glstm import masks
from glstm.advice import about_rate, shares_of_rate, values_in_time
from glstm.data.task import Batch, Stage, Task
from glstm.errors import GateWarning, UserError
from glstm.fused import by_tables
from glstm.layers import gated_layers
from glstm.ops.gpu import choice, sparse
from glstm.training.curriculum import TemporalCurriculum
from glstm.training.evaluate import TEST_BATCH, check_opening, evaluating, first_gates
from glstm.training.fabric import Processes, all_together
from glstm.training.graph import captured
from glstm.training.guard import SAMPLES, Guard, mean
from glstm.training.members import Model as Model
from glstm.training.members import check_fits, is_cudnns, make_models
from glstm.training.objective import Objective, Test
from glstm.training.optimizers import OPTIMIZERS
from glstm.training.pruning import Pruning
from glstm.training.room import OpenUnits
from glstm.training.settings import Settings, check_together
from glstm.training.stack import Group, Stack
from glstm.training.weight_drop import WeightDrop

PRECISIONS = ("32-true", "64-true", "bf16-mixed")


@dataclass(frozen=True)
class Score:
    """A member's loss and error on the test set; how open its gates are there, and the share of all updates that it
    makes: None if it has no gates, or does not count updates."""

    loss: float | None  # None: there is nothing to test on
    error: float | None
    mean_k: float | None
    open_share: float | None


class Population:
    """The members' networks (`models`) and everything that changes them; a population of one is the normal case.

    `train(epoch)` and `test()` are enough for most uses; a loop that must be able to stop calls single steps.

    Args:
        task: What to learn. The population is on the device of the task's data.
        model: A network for one member, something that makes a fresh one (called for each member, after torch's
            generator was set to its seed), or one of these for each.
        settings: How to train it, or a list with those of each member.
        precision: "32-true", "64-true" or "bf16-mixed".
        graph: On CUDA, a step is one graph; False: the same, kernel by kernel.
        together: Whether members are called as one, by torch.vmap; None: if they can be, on CUDA.
        fabric: Several devices or machines, of Lightning: each process takes its share of every batch.
    """

    def __init__(
        self,
        task: Task,
        model: Model | Sequence[Model],
        settings: Settings | Sequence[Settings],
        *,
        precision: str = "32-true",
        graph: bool = True,
        together: bool | None = None,
        fabric: Processes | None = None,
    ):
        if precision not in PRECISIONS:
            raise UserError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r:.50}")
        self.settings = [settings] if isinstance(settings, Settings) else list(settings)
        check_together(self.settings)
        self.task, self.fabric, self.device = task, fabric, task.device
        common = self.settings[0]
        self.rank, self.world = (fabric.global_rank, fabric.world_size) if fabric else (0, 1)
        self.batch_size = common.batch
        if self.batch_size % self.world:
            raise UserError(f"a batch of {self.batch_size} cannot be shared equally by {self.world} devices")
        self.batches = task.batch_count("train", self.batch_size)
        self.dtype = torch.float64 if precision == "64-true" else torch.float32
        self.mixed = precision == "bf16-mixed"

        makers = [model] * len(self.settings) if isinstance(model, nn.Module) or callable(model) else list(model)
        self.makers = makers
        self.models: list[Any] = make_models(makers, self.settings, self.device, self.dtype)
        for own, setting in zip(self.models, self.settings, strict=True):
            check_opening(own, first_gates(own, task), task)
            for layer in gated_layers(own):  # now: a training step does not see the values of times
                layer.meet(task.steps if task.times is None and not task.own_times else task.grid())
            check_fits(own, setting)
            for unit in (1.0, *(layer.unit for layer in gated_layers(own))):
                setting.check_rate(task.span, unit)
        self._warn_of_rates()
        self.shares = [  # from the values before training, so that a run that is resumed has the same
            {layer: shares_of_rate(layer, task.span, setting.gate_lr) for layer in gated_layers(model)}
            for setting, model in zip(self.settings, self.models, strict=True)
        ]
        self.curricula = [
            TemporalCurriculum(model, setting.alpha, setting.rho) if setting.curriculum else None
            for setting, model in zip(self.settings, self.models, strict=True)
        ]
        shared = task.equally_long and not task.own_times
        times = task.grid() if task.times is None else task.times
        states = len(OPTIMIZERS[common.optimizer](torch.zeros(1, 1), torch.zeros(1, 1)).state)
        self.stack = Stack(self.models, times.to(self.device) if shared else None, together, states)
        self._share_values()
        self.objectives = [Objective(model, task, self.dtype, self.rank, self.world) for model in self.models]
        self.tests = [Test(model, task, self.dtype) for model in self.models]
        values = self.stack.flat.detach()
        decays = values.new_tensor([[setting.decay] for setting in self.settings])
        self.optimizer = OPTIMIZERS[common.optimizer](values, decays)
        self.optimizer.state = dict(zip(self.optimizer.state, self.stack.values[1:], strict=True))  # zeros, too
        self.rates = torch.zeros_like(values)
        self.pruning = Pruning(self.settings, self.stack) if any(own.sparsity for own in self.settings) else None
        drops = any(own.weight_drop for own in self.settings)
        self.weight_drop = WeightDrop(self.settings, self.stack) if drops else None
        self.clipped = any(setting.clip for setting in self.settings)
        self.clip = values.new_tensor([[setting.clip or torch.inf] for setting in self.settings])
        self.charged = any(setting.budget for setting in self.settings)
        self.budgets = values.new_zeros(len(self.models))
        self.seeds = torch.tensor([setting.seed for setting in self.settings], device=self.device)
        self.guard = Guard(self.settings, self.device)
        self.sums = self.guard.sums
        self.next_batch = torch.zeros((), dtype=torch.int64, device=self.device)
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)  # since the very first
        self.done: set[int] = set()  # members that keep their values while others go on
        # A graph is the same for all steps, so on CUDA those that are done are computed, too; their rates are 0.
        self.computes_done = self.device.type != "cpu"
        self.epoch, self.batch = 0, 0  # the same as `next_batch` and `updates`, on the host
        self.moved_to: int | None = None  # the epoch up to which curricula and pruning have been applied
        self.stages: dict[tuple[int, ...], Stage] = {}  # by the members that read them; () for all
        by_cudnn = any(is_cudnns(module, values) for model in self.models for module in model.modules())
        self.one_graph = graph and self.device.type == "cuda" and self.world == 1 and not by_cudnn
        self._graphs: dict[int, Callable[[], None]] = {}
        self._rooms: dict[int, sparse.Room | None] = {}  # that a graph has for open units; None: it computes all units
        self._open_units: OpenUnits | None = None
        self._may_skip = self.one_graph and OpenUnits.known(self.models, self.stack.times, self.dtype)

    def _warn_of_rates(self) -> None:
        """Once for all members: their rates are seldom different."""
        span = self.task.span
        learn = [
            setting.gate_rate(span)
            for setting, model in zip(self.settings, self.models, strict=True)
            if setting.gate_lr and setting.trains_gates and any(layer.gate.in_time for layer in gated_layers(model))
        ]
        if learn and self.settings[0].optimizer != "sgd":  # whose steps are not of the size of the rate
            for sentence in about_rate(max(learn), span, "leave gate_lr open (None), or give one in the unit of times"):
                warnings.warn(sentence, GateWarning, stacklevel=3)

    def train(self, epoch: int) -> list[float]:
        """A whole epoch, counted from 1; returns each member's mean loss; nan: it became nan, or infinite."""
        self.start(epoch)
        while self.batch < self.batches:
            self.step()
        totals, left_out = self.sums[:, 0].tolist(), self.guard.left_out[:, SAMPLES].tolist()
        stopped = self.guard.failures(self.batch)
        return [
            mean(total, 0 if row in stopped else self.task.train_size - left)
            for row, (total, left) in enumerate(zip(totals, left_out, strict=True))
        ]

    def start(self, epoch: int, batch: int = 0) -> None:
        """Go to a batch of an epoch. At the first batch the sums of losses are reset, curricula take their step,
        and weights are pruned."""
        if not 1 <= epoch <= self.settings[0].epochs:
            raise UserError(
                f"epochs count from 1 to the settings' {self.settings[0].epochs}, and {epoch} is none of them"
            )
        self.epoch, self.batch = epoch, batch
        self.next_batch.fill_(batch)
        self.updates.fill_((epoch - 1) * self.batches + batch)
        if batch == 0:
            self.guard.start_epoch()
        if batch == 0 and epoch != self.moved_to:
            self._move_curricula(epoch)
            if self.pruning:
                self.pruning.move(epoch, self.done)
            self.moved_to = epoch
        self._fill_stages(epoch)
        for row, (setting, model) in enumerate(zip(self.settings, self.models, strict=True)):
            share = 0.0 if row in self.done else setting.rate_share(epoch)
            of_gates = 0.0 if setting.curriculum else share * setting.gate_rate(self.task.span)
            self.rates[row, : self.stack.weights] = share * setting.lr
            self.rates[row, self.stack.weights :] = of_gates
            self._rates_in_units(row, model, of_gates)
        if self.pruning:
            self.rates *= self.pruning.kept  # an optimiser's mean of gradients would move what was pruned
        self.budgets.copy_(self.budgets.new_tensor([setting.budget_in(epoch) for setting in self.settings]))
        for model in self.models:
            if not model.training:  # else its parts keep the modes they were given
                model.train()

    def _rates_in_units(self, row: int, model: nn.Module, rate: float) -> None:
        """Gates whose values are in another unit than the task's times move at the rate in that unit, and values that
        reach less far at a part of it."""
        _, gates = self.stack.own(self.rates, row)
        setting, at = self.settings[row], 0
        for layer in gated_layers(model):
            times = {id(value): name for name, value in values_in_time(layer)}
            for value in layer.gate_parameters():
                own = slice(at, at + value.numel())
                if id(value) in times:
                    gates[own] = rate * self.shares[row][layer][times[id(value)]] / layer.unit
                elif setting.gate_lr is None:  # a ratio, say: it goes with the weights
                    gates[own] = self.rates[row, 0]
                at += value.numel()

    def _move_curricula(self, epoch: int) -> None:
        for row, (setting, curriculum) in enumerate(zip(self.settings, self.curricula, strict=True)):
            if curriculum is None or row in self.done:
                continue
            if epoch > setting.epochs - setting.open_epochs:
                curriculum.open(setting.sigma_of_open(self.task.span))
            elif epoch > 1:
                curriculum.step()

    def _fill_stages(self, epoch: int) -> None:
        """The epoch's data, written into the tensors of the epoch before, because graphs read from fixed addresses.

        For the adding task that is a whole epoch of sequences for each seed: 80 MB at 5000 of 2000 steps.
        """
        if len({setting.seed for setting in self.settings}) == 1:  # all read the same
            self._hold((), [self.task.stage(self.settings[0].seed, epoch)])
            return
        for group in self.stack.groups:
            fresh = [self.task.stage(self.settings[row].seed, epoch) for row in group.rows]
            self._hold(tuple(group.rows), fresh)

    def _hold(self, rows: tuple[int, ...], fresh: list[Stage]) -> None:
        """Keep stages under their members' numbers, stacked where there are several."""
        if rows not in self.stages:
            self.stages[rows] = tuple(part.new_empty(len(fresh), *part.shape) for part in fresh[0])
            for number, row in enumerate(rows if len(rows) > 1 else ()):  # in case their group is split
                self.stages[(row,)] = tuple(held[number : number + 1] for held in self.stages[rows])
        for number, stage in enumerate(fresh):
            for held, part in zip(self.stages[rows], stage, strict=True):
                held[number].copy_(part)

    def step(self) -> None:
        """One update of every member, on the next batch."""
        first, size = self.batch * self.batch_size, self.size_now()
        room = self._room() if self.one_graph else None
        if self.one_graph and (size not in self._graphs or self._rooms[size] != room):
            self.wait()  # for the last graph, whose memory is about to be freed
            self._graphs.pop(size, None)  # the last batch of an epoch may be smaller
            self._graphs[size] = self._graph(size, room)
            self._rooms[size] = room if self._may_skip else None
        if self.device.type != "cpu":  # now: to make a graph draws from the generator, too
            self._seed_torch(self.settings[0].seed)
        done = [buffer for row in self.done if self.computes_done for buffer in self.models[row].buffers()]
        before = [buffer.clone() for buffer in done]  # running statistics, say, have no rate
        if self.one_graph:
            self._graphs[size]()
        else:
            self._update(slice(first, first + size))
        for buffer, value in zip(done, before, strict=True):
            buffer.copy_(value)
        self.batch += 1

    def size_now(self) -> int:
        """Samples in the next batch: the last one of an epoch may be smaller."""
        return min(self.batch_size, self.task.train_size - self.batch * self.batch_size)

    def _room(self) -> sparse.Room | None:
        """For the open units of the next step, where computing only these is faster; sound, because it is counted."""
        if self._may_skip and self._open_units is None:
            try:
                self._open_units = OpenUnits(self.stack, self.batch_size)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # a gate that cannot be captured: then neither can the step
                self._may_skip = False
        return self._open_units.needed() if self._may_skip and self._open_units else None

    def _graph(self, size: int, room: sparse.Room | None = None) -> Callable[[], None]:
        """A step on batches of this size as one graph; for networks that cannot be captured, kernel by kernel."""
        step = partial(self._step_by_number, size)
        try:
            with choice.planned(room) as plan:
                graph = captured(step, self.changing())
            self._may_skip &= plan.used or room is None  # such as a network that reads every output
            return graph
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # such as a network that asks the device for a number; its own mistakes it makes again
            self.one_graph = False
            return step

    def _step_by_number(self, size: int) -> None:
        self._update(self._next(size))

    def _seed_torch(self, seed: int) -> None:
        """Torch's generator, which dropout draws from, as a function of (seed, step): a resumed run draws the same."""
        step = (self.epoch - 1) * self.batches + self.batch
        step_seed = masks.seed_of_step(seed, step)
        if self.device.type == "cuda":
            torch.cuda.default_generators[self.device.index or torch.cuda.current_device()].manual_seed(step_seed)
        else:
            torch.default_generator.manual_seed(step_seed)

    def wait(self) -> None:
        """Wait until the device has finished: times measured before that mean nothing."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _next(self, size: int) -> Tensor:
        """The numbers of the next batch's samples, counted on the device."""
        return self.next_batch * self.batch_size + torch.arange(size, device=self.device)

    def changing(self) -> list[Tensor]:
        """Everything that an update changes."""
        return [self.stack.values, *self._buffers(), self.next_batch, self.updates, *self.guard.state()]

    def _buffers(self) -> list[Tensor]:
        return [buffer for model in self.models for buffer in model.buffers()]

    def _update(self, wanted: slice | Tensor) -> None:
        size = len(wanted) if isinstance(wanted, Tensor) else wanted.stop - wanted.start
        self.guard.prepare(size)
        values = self.stack.values
        before, buffers_before = values.clone(), [buffer.clone() for buffer in self._buffers()]
        loss, gradient = self.gradients(wanted)
        with torch.no_grad():
            self.apply(gradient)
            gain = self.guard.add_losses(loss, size)
            # Nan or infinite if, and only if, a value is: float64 holds the difference of any two of float32.
            spread = values.amax((0, 2)).double() - values.amin((0, 2)).double()
            total = spread.unsqueeze(1) + gain[:, :1]
            if self.world > 1:  # a loss is of this process's share
                total = self.over_processes(total, "mean")
            made = self.guard.settle(total - total, gain, size, values, before)
            owners = [row for row, model in enumerate(self.models) for _ in model.buffers()]
            for row, buffer, old in zip(owners, self._buffers(), buffers_before, strict=True):
                buffer.copy_(torch.where(made[row, 0], buffer, old))
            self.next_batch += 1

    def gradients(self, wanted: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Of these samples: every member's mean loss (M,), and the gradient (M, P) of what it minimises."""
        size = len(wanted) if isinstance(wanted, Tensor) else wanted.stop - wanted.start
        keyed = self.weight_drop is not None or any(objective.keyed for objective in self.objectives)
        keys = masks.keys(self.seeds, self.updates) if keyed else self.seeds  # not read then

        def run(group: Group, rows: Tensor) -> Tensor:
            if self.device.type == "cpu":
                self._seed_torch(self.settings[group.rows[0]].seed)
            with self._autocast(), by_tables():
                return group.call(self.objectives[group.rows[0]], rows, *self._arguments(group, keys, wanted))

        left_out = () if self.computes_done else self.done
        values = self.weight_drop.thinned(keys) if self.weight_drop else None
        each = self.stack.in_order(self.stack.each(run, left_out, values))  # (M, 3): loss, what cells add, openness
        # Gradients are averaged over processes: these are the batch's means.
        loss, added = each[:, 0] * (self.world / size), each[:, 1] * (self.world / size)
        objective = loss + added + self.budgets * each[:, 2]
        (gradient,) = torch.autograd.grad(objective.sum(), self.stack.flat)
        return loss.detach(), gradient

    def _arguments(self, group: Group, keys: Tensor, wanted: slice | Tensor) -> tuple[tuple, tuple]:
        """Arguments of the objective: those of each member of the group, and those that are the same for all."""
        own = torch.stack([keys[row] for row in group.rows]) if group.several else keys[group.rows[0]]
        if () in self.stages:
            return (own,), (tuple(part[0] for part in self.stages[()]), wanted, self.charged)
        stage = self.stages[tuple(group.rows)]
        return (own, stage if group.several else tuple(part[0] for part in stage)), (wanted, self.charged)

    def apply(self, gradient: Tensor) -> None:
        """The update itself."""
        gradient = self.over_processes(gradient, "mean")
        if self.pruning:
            gradient = gradient * self.pruning.kept  # or they would count in the norm
        if self.clipped:
            weights = gradient[:, : self.stack.weights]
            weights *= (self.clip / (self._norms(weights) + 1e-6)).clamp(max=1.0)  # torch's clip_grad_norm_, row by row
        self.updates += 1
        self.optimizer.step(self.stack.flat, gradient, self.rates, self.updates)

    def _norms(self, weights: Tensor) -> Tensor:
        """Each member's norm (M, 1). On the CPU one by one and without padding, so that it is the same as alone."""
        if weights.device.type != "cpu":
            return weights.norm(dim=1, keepdim=True)
        sizes = [layout.weights for layout in self.stack.layouts]
        return torch.stack([row[:size].norm() for row, size in zip(weights, sizes, strict=True)]).unsqueeze(1)

    def over_processes(self, value: Tensor, how: str) -> Tensor:
        """The sum or mean over all processes; with one process, its own value."""
        if self.fabric is None or self.world == 1:
            return value
        with all_together():
            return cast(Tensor, self.fabric.all_reduce(value.clone(), reduce_op=how))

    @torch.no_grad()
    def _share_values(self) -> None:
        """All processes begin with, and test, what the first one has: buffers, too, such as running statistics."""
        if self.fabric is None or self.world == 1:
            return
        with all_together():
            for tensor in (self.stack.flat, *(buffer for model in self.models for buffer in model.buffers())):
                tensor.copy_(cast(Tensor, self.fabric.broadcast(tensor.detach())))

    def _autocast(self):
        # Every weight is cast once per step, so a cache of casts brings nothing; and it does not work with graphs.
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed, cache_enabled=False)

    @torch.no_grad()
    def test(self, part: str = "test") -> list[Score]:
        """Every member on the whole test set, or on the validation set."""
        if not self.task.size(part):
            raise UserError(f"{self.task.name} has no {part} part")
        self._share_values()
        sums = torch.zeros((), device=self.device)
        with evaluating(*self.models):
            for whole in self.task.batches(part, TEST_BATCH):
                own = Batch(*whole).share(self.rank, self.world, self.task.per_step)

                def run(group: Group, rows: Tensor, batch: Batch = own) -> Tensor:
                    with self._autocast():
                        return group.call(self.tests[group.rows[0]], rows, (), tuple(batch))

                sums = sums + self.stack.in_order(self.stack.each(run))  # (M, 6): see `Test`
        sums = self.over_processes(sums, "sum")
        figures = torch.cat((sums[:, :2] / self.task.size(part), sums[:, 2::2] / sums[:, 3::2]), 1)
        return [Score(loss, error, _or_none(k), _or_none(share)) for loss, error, k, share in figures.tolist()]


def _or_none(value: float) -> float | None:
    return None if value != value else value

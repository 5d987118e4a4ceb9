"""What of a run is saved, so that it goes on with the same bits, and how it is read again."""

from typing import Any

import torch
from torch import Tensor

from glstm.pretrained import serialized
from glstm.training.checked import check_extra, check_place
from glstm.training.checkpoint import checkpoint, load_checkpoint
from glstm.training.display import EpochRow, LossRow
from glstm.training.population import Population
from glstm.training.record import Place, Run

BEST = "best."  # before the names of the best epoch's values in a checkpoint


def save_run(run: Run, member: int, population: Population, sums: Tensor, place: Place, seconds: float) -> None:
    """`member`: its number in the population; `sums`: of its losses, over all processes; `seconds`: of this epoch."""
    epoch, batch = place
    progress = {
        "epoch": epoch,
        "batch": batch,
        "seconds": seconds,
        "history": [vars(row) for row in run.history],
        "losses": [vars(row) for row in run.losses],
    }
    extra = _extra(run, member, population) | {"sums": sums}
    extra |= {f"{BEST}{name}": value for name, value in (run.best or {}).items()}
    now = run.model.state_dict()
    run.folder.save_state(
        checkpoint(run.model, _optimizer_state(population, member), extra, progress),
        serialized(now if run.best is None else run.best),
        None if run.best is None else serialized(now),
        run.history,
        run.losses,
    )
    run.saved_at = place


def load_run(run: Run, member: int, population: Population, epochs: int) -> dict[str, Any]:
    """Read a run's checkpoint into it and into the population; what it says of the progress is returned."""
    path = run.folder.checkpoint
    extra, progress = load_checkpoint(path, run.model, _optimizer_state(population, member))
    expected = _extra(run, member, population)
    extra.setdefault("left_out", torch.zeros_like(expected["left_out"]))  # checkpoints before it was counted
    check_place(path, progress, population.batches, max(epochs, len(progress["history"])))
    check_extra(path, extra, expected, run.model, BEST)
    run.resumed_at = run.saved_at = progress["epoch"], progress["batch"]
    run.history = [EpochRow(**row) for row in progress["history"]]
    run.losses = [LossRow(**row) for row in progress["losses"]]
    population.guard.restart(member, extra["sums"], extra["left_out"])
    if "kept" in expected and population.pruning:
        population.pruning.restart(member, extra["kept"])
    if run.gates_before is not None:
        run.gates_before.copy_(extra["gates_before"])
    best = {name.removeprefix(BEST): value for name, value in extra.items() if name.startswith(BEST)}
    run.best = {name: value.to(population.task.device) for name, value in best.items()} or None
    return progress


def _extra(run: Run, member: int, population: Population) -> dict[str, Tensor]:
    """What is saved besides its network."""
    own = {"sums": population.sums[member], "left_out": population.guard.left_out[member]}
    if population.pruning and run.settings.sparsity:
        own["kept"] = population.pruning.of(member)
    return own if run.gates_before is None else own | {"gates_before": run.gates_before}


def _optimizer_state(population: Population, member: int) -> dict[str, Tensor]:
    """The optimiser's state of one member, without padding, which depends on the other members."""
    found = {}
    for name, rows in population.optimizer.state.items():
        found[f"{name}.weights"], found[f"{name}.gates"] = population.stack.own(rows, member)
    return found

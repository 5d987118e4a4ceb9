"""What the files of a run must hold before anything is made of them: somebody else may have written them."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.forms import (
    Form,
    anything,
    entries,
    flag,
    in_short,
    items,
    maybe,
    measured,
    number,
    one_of,
    parse,
    text,
    whole,
)
from glstm.pretrained import described_model

MOST_EPOCHS = 10**9
MOST_MACHINES = 10**4

_loss, _error = measured, maybe(measured)
_epoch_row = entries(
    {
        "epoch": whole(1, MOST_EPOCHS), "train_loss": _loss, "test_loss": _error, "test_error": _error,
        "mean_k": _error, "open_share": _error, "seconds": number(0), "test_seconds": number(0),
    },
    {"together": whole(1), "validation_loss": _error, "validation_error": _error, "left_out": whole(0)},
)  # fmt: skip
_loss_row = entries({"epoch": whole(1, MOST_EPOCHS), "batch": whole(1), "loss": _loss})
_progress = entries(
    {
        "epoch": whole(1, MOST_EPOCHS), "batch": whole(0), "seconds": number(0), "history": items(_epoch_row),
        "losses": items(_loss_row),
    },
    others=anything,
)  # fmt: skip
_things = entries({}, others=anything)
_task = entries(
    {"name": text, "steps": whole(1, 2**40), "inputs": whole(1, 2**31), "outputs": whole(1, 2**31)},
    {"times": maybe(items(number(), least=1)), "own_times": flag, "columns": maybe(_things)},
    others=anything,
)
_where = entries(
    {},
    {
        "device": maybe(text), "devices": maybe(whole(1, MOST_MACHINES)), "nodes": maybe(whole(1, MOST_MACHINES)),
        "precision": maybe(text), "matmul": maybe(one_of("highest", "high", "medium")), "data": maybe(text),
        "tensorboard": maybe(flag),
    },
    others=anything,
)  # fmt: skip
_config = entries({"settings": _things, "task": _task, "where": _where}, {"recipe": maybe(_things)}, others=anything)
_of_a_file = entries({"path": text}, others=anything)


def check_config(path: Path, config: dict[str, Any]) -> None:
    """The config.json of a run."""
    _check(path, "whole", _config, config)
    recipe = config.get("recipe") or {}
    if recipe.get("task") == "file":
        _check(path, "whole", _of_a_file, recipe.get("data"), "recipe.data")
    if config["task"].get("times") is not None and len(config["task"]["times"]) != config["task"]["steps"]:
        raise UserError(f"{path} is not whole: task.times should be as many as task.steps")


def check_progress(path: Path, content: str | None) -> dict[str, Any]:
    """How far a checkpoint has come."""
    if content is None:
        raise UserError(f"{path} is not a whole checkpoint: it does not say how far it has come")
    try:
        found = parse(content)
    except ValueError as error:
        raise UserError(f"{path} is not a whole checkpoint: its progress is no JSON, {in_short(error)}") from None
    _check(path, "a whole checkpoint", _progress, found)
    epochs = [row["epoch"] for row in found["history"]]
    if epochs != list(range(1, len(epochs) + 1)) or len(epochs) >= found["epoch"]:
        raise UserError(f"{path} is not a whole checkpoint: its history is not that of the epochs before its own")
    return found


def check_place(path: Path, progress: dict[str, Any], batches: int, epochs: int) -> None:
    """Whether a run with so many batches in an epoch can be where the checkpoint says."""
    epoch, batch = progress["epoch"], progress["batch"]
    if batch > batches or epoch > epochs + 1 or (epoch == epochs + 1 and batch):
        raise UserError(
            f"{path} is of another run than config.json beside it: it is at batch {batch} of epoch {epoch}, and there "
            f"are {batches} batches and {epochs} epochs"
        )


def check_extra(path: Path, extra: dict[str, Tensor], expected: dict[str, Tensor], model: nn.Module, best: str) -> None:
    """The tensors of a checkpoint besides those of network and optimiser; after `best`, the network's at its best."""
    own = {f"{best}{name}": value for name, value in model.state_dict().items()}
    wanted = expected | (own if any(name.startswith(best) for name in extra) else {})
    for name, value in wanted.items():
        if name not in extra or extra[name].shape != value.shape or extra[name].dtype != value.dtype:
            kind = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
            raise UserError(f"{path} does not fit the run that config.json beside it is of: {name} should be {kind}")
    if unknown := sorted(set(extra) - set(wanted)):
        raise UserError(f"{path} is not a whole checkpoint: {unknown[0]!r:.50} is not part of this run")


def check_network(folder: Path, config: dict[str, Any], checkpoint: Path) -> None:
    """Before the recipe's network is made, which takes as much time and memory as the recipe says: whether the recipe,
    the description and the checkpoint are of one network. Only the names and shapes in the checkpoint are read."""
    described, recipe = config.get("model"), config.get("recipe")
    if not isinstance(described, dict) or not isinstance(recipe, dict):
        return
    layer = described.get("layer")
    layer = layer if isinstance(layer, dict) else {}
    for name, option in (("units", "hidden_size"), ("layers", "num_layers")):
        if option in layer and recipe.get(name) != layer[option]:
            raise UserError(
                f"{folder / 'config.json'} contradicts itself: the recipe has {name} {recipe.get(name)!r:.20}, and the "
                f"network {option} {layer[option]!r:.20}"
            )
    if not checkpoint.exists():
        return
    own = {f"model.{name}": list(value.shape) for name, value in described_model(folder, config).state_dict().items()}
    try:
        with safe_open(checkpoint, "pt") as file:
            names = [name for name in file.keys() if name.startswith("model.")]  # noqa: SIM118
            found = {name: file.get_slice(name).get_shape() for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{checkpoint} cannot be read as safetensors: {in_short(error)}") from None
    if found != own:
        raise UserError(f"{checkpoint} does not fit the network that config.json beside it describes")


def _check(path: Path, what: str, form: Form, value: Any, name: str = "") -> None:
    try:
        form(value, name)
    except ValueError as error:
        raise UserError(f"{path} is not {what}: {error}") from None

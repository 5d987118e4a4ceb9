"""Lightning Fabric, which handles devices, processes and machines for the loop; and what is used in one process."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Union

import torch

from glstm.errors import UserError
from glstm.extras import needed_by

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class OneProcess:
    """What the loop uses of Fabric, where there is one process on one device: to import Lightning takes two seconds."""

    global_rank, world_size, is_global_zero = 0, 1, True

    def __init__(self, device: str):
        self.device = torch.device(device) if device == "cpu" else torch.device(device, 0)

    def launch(self) -> None:
        pass

    def barrier(self) -> None:
        pass

    @contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        yield

    def all_reduce(self, value: Any, reduce_op: str) -> Any:
        return value

    def broadcast(self, value: Any) -> Any:
        return value


Processes = Union["Fabric", OneProcess]


def available_device(name: str) -> str:
    """The device called `name`, if it exists; 'auto' is CUDA if there is a CUDA device."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for, but torch sees no CUDA device here; use --device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps was asked for, but torch sees no Apple GPU here; use --device cpu")
    return name


def make_fabric(device: str = "auto", devices: int = 1, nodes: int = 1) -> Processes:
    device = available_device(device)
    if device == "cuda" and devices > torch.cuda.device_count():
        raise UserError(f"{devices} CUDA devices were asked for, but there are {torch.cuda.device_count()}")
    if devices < 1 or nodes < 1:
        raise UserError(f"devices and nodes must be at least 1, not {devices} and {nodes}")
    if devices * nodes == 1:
        return OneProcess(device)
    with needed_by("training on several devices"):
        from lightning.fabric import Fabric
    # Fabric's hints are about choices that this program has made already.
    for name in ("lightning.fabric", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*srun.*")
    return Fabric(accelerator=device, devices=devices, num_nodes=nodes, strategy="ddp")


def set_matmul(fabric: Processes, choice: str) -> None:
    """How exactly CUDA multiplies float32 matrices: 'highest', or 'high' with operands of fewer bits, as cuDNN's LSTM
    does by default. On a CPU it is always 'highest': otherwise torch would round there, too, if that is faster."""
    torch.set_float32_matmul_precision(choice if fabric.device.type == "cuda" else "highest")


class LostProcess(UserError):
    """One of several processes that train together has ended, or cannot be reached any more."""


@contextmanager
def all_together() -> Iterator[None]:
    """Around what all processes do at once."""
    try:
        yield
    except torch.OutOfMemoryError:  # it is a RuntimeError, too, and this process's own
        raise
    except RuntimeError as error:  # torch's, whose text is about a connection
        raise LostProcess("another process of this run has ended, or cannot be reached") from error


def leave(fabric: Processes) -> None:
    """All processes wait for the last one and then close the connection. A process that just exits may abort in one of
    its threads, and then the others are ended, too."""
    if fabric.world_size > 1:
        fabric.barrier()
        torch.distributed.destroy_process_group()

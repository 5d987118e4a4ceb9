"""Lightning Fabric, which knows about devices, processes and machines so that the loop need not."""

import logging
import warnings

import torch

from glstm.errors import UserError
from glstm.extras import needed_by
from glstm.training.build import available_device

with needed_by("training"):
    from lightning.fabric import Fabric as Fabric


def make_fabric(device: str = "auto", devices: int = 1, nodes: int = 1) -> Fabric:
    device = available_device(device)
    if device == "cuda" and devices > torch.cuda.device_count():
        raise UserError(f"{devices} CUDA devices were asked for, but there are {torch.cuda.device_count()}")
    if devices < 1 or nodes < 1:
        raise UserError(f"devices and nodes must be at least 1, not {devices} and {nodes}")
    # Its hints are about choices this program has made already.
    for name in ("lightning.fabric", "lightning.fabric.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*srun.*")
    strategy = "ddp" if devices * nodes > 1 else "auto"
    return Fabric(accelerator=device, devices=devices, num_nodes=nodes, strategy=strategy)


def set_matmul(fabric: Fabric, choice: str) -> None:
    """How exactly CUDA multiplies float32 matrices: 'highest', or 'high' with operands of fewer bits, as cuDNN's LSTM
    does by default. On a CPU it stays 'highest': torch would round there, too, where the CPU can gain from it."""
    torch.set_float32_matmul_precision(choice if fabric.device.type == "cuda" else "highest")


def part(fabric: Fabric) -> None:
    """All processes wait for the last one's work and take the connection down: one that only exits can abort in its
    threads, and an aborted process takes the others with it."""
    if fabric.world_size > 1:
        fabric.barrier()
        torch.distributed.destroy_process_group()

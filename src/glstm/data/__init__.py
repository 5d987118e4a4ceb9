"""Tasks: the adding problem, sequential and permuted MNIST, sequential CIFAR-10."""

from pathlib import Path

import torch

from glstm.data.adding import Adding as Adding
from glstm.data.cifar import CIFAR10 as CIFAR10
from glstm.data.cifar import SequentialCIFAR10 as SequentialCIFAR10
from glstm.data.mnist import MNIST as MNIST
from glstm.data.mnist import PermutedMNIST as PermutedMNIST
from glstm.data.mnist import SequentialMNIST as SequentialMNIST
from glstm.data.task import Task as Task
from glstm.errors import UserError

TASKS = ("adding", "smnist", "pmnist", "scifar")
DATASETS = {dataset.name: dataset for dataset in (MNIST, CIFAR10)}


def load_task(
    name: str,
    *,
    steps: int | None = None,
    folder: Path | str | None = None,
    train_size: int | None = None,
    test_size: int | None = None,
    shift: int = 0,
    device: torch.device | str = "cpu",
) -> Task:
    """The task called `name`. The adding task takes `steps`; the others have their images' length, and take `shift`."""
    for size_name, size in (("train_size", train_size), ("test_size", test_size)):
        if size is not None and size < 1:
            raise UserError(f"{size_name} must be at least 1, not {size}")
    if name == "adding":
        if shift:
            raise UserError(f"shift moves images, and the adding task has none: leave out shift={shift}")
        given = {"steps": steps, "train_size": train_size, "test_size": test_size}
        return Adding(**{key: value for key, value in given.items() if value is not None}, device=device)
    kinds = {"smnist": SequentialMNIST, "pmnist": PermutedMNIST, "scifar": SequentialCIFAR10}
    if name not in kinds:
        raise UserError(f"there is no task {name!r}; the tasks are {', '.join(TASKS)}")
    task = kinds[name](folder, train_size=train_size, test_size=test_size, shift=shift, device=device)
    if steps is not None and steps != task.steps:
        raise UserError(f"{name} has {task.steps} steps, one a pixel; steps={steps} fits only the adding task")
    return task

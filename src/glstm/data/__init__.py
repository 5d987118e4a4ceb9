"""Tasks: the adding problem, sequential and permuted MNIST, sequential CIFAR-10; and the base class of all tasks."""

from collections.abc import Callable

from glstm.data.adding import Adding as Adding
from glstm.data.cifar import CIFAR10 as CIFAR10
from glstm.data.cifar import SequentialCIFAR10 as SequentialCIFAR10
from glstm.data.mnist import MNIST as MNIST
from glstm.data.mnist import PermutedMNIST as PermutedMNIST
from glstm.data.mnist import SequentialMNIST as SequentialMNIST
from glstm.data.task import Task as Task

# What makes a task, by name. Those that need files take `folder`, those that need a device take `device`.
TASKS: dict[str, Callable[..., Task]] = {
    "adding": Adding,
    "smnist": SequentialMNIST,
    "pmnist": PermutedMNIST,
    "scifar": SequentialCIFAR10,
}
DATASETS = {dataset.name: dataset for dataset in (MNIST, CIFAR10)}

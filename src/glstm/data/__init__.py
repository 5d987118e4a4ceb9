"""Tasks: from your own arrays and files; the paper's adding problem, sequential MNIST (also permuted) and CIFAR-10."""

import inspect
from collections.abc import Callable

from glstm.data.adding import Adding as Adding
from glstm.data.arrays import ArrayTask as ArrayTask
from glstm.data.cifar import CIFAR10 as CIFAR10
from glstm.data.cifar import SequentialCIFAR10 as SequentialCIFAR10
from glstm.data.from_file import file_task as file_task
from glstm.data.mnist import MNIST as MNIST
from glstm.data.mnist import PermutedMNIST as PermutedMNIST
from glstm.data.mnist import SequentialMNIST as SequentialMNIST
from glstm.data.reading import read as read
from glstm.data.sequences import Sequences as Sequences
from glstm.data.task import Batch as Batch
from glstm.data.task import Task as Task

# So that help() and editors show the options: the classes that have them need `Task` before.
for _function, _makes in ((Task.from_arrays, ArrayTask), (Task.from_file, file_task)):
    vars(_function)["__signature__"] = inspect.signature(_makes)
    _function.__doc__ = inspect.getdoc(_makes)

# What makes a task, by name. Those that need files take `folder`, those that need a device take `device`.
TASKS: dict[str, Callable[..., Task]] = {
    "adding": Adding,
    "smnist": SequentialMNIST,
    "pmnist": PermutedMNIST,
    "scifar": SequentialCIFAR10,
    "file": file_task,
}
DATASETS = {dataset.name: dataset for dataset in (MNIST, CIFAR10)}

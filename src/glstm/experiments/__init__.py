"""The paper's tables and figures, and a few of our own: each is a file of literals here, with a line in `FILES`."""

from importlib import import_module

from glstm.experiments.experiment import Experiment as Experiment

# In the order of the report.
FILES = (
    "fig1_cells",
    "table1_adding1000",
    "table1_adding2000",
    "adding_lengths",
    "table1_smnist",
    "table1_scifar",
    "table2_pmnist",
    "table2_rivals_smnist",
    "table2_rivals_pmnist",
    "fig3_trainability",
    "app_b_inits",
    "app_c_plstm",
    "budget",
    "threshold",
    "pruning",
    "curriculum",
    "gradflow",
    "app_d_optim",
    "app_d_chrono",
    "app_d_size",
    "candidate",
    "truncated",
    "frontier",
    "small",
    "thrifty",
    "weight_drop",
    "no_recurrence",
)

_all: list[Experiment] = [import_module(f"{__name__}.{file}").EXPERIMENT for file in FILES]
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _all}

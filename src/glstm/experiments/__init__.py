"""The paper's tables and figures, and a few of our own: each is a file of literals here."""

from glstm.experiments import (
    app_b_inits,
    app_c_plstm,
    app_d_chrono,
    app_d_optim,
    app_d_size,
    budget,
    candidate,
    curriculum,
    fig3_trainability,
    frontier,
    gradflow,
    table1_adding1000,
    table1_adding2000,
    table1_scifar,
    table1_smnist,
    table2_pmnist,
    threshold,
    truncated,
)
from glstm.experiments.experiment import Experiment as Experiment

# In the order of the report.
EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        table1_adding1000,
        table1_adding2000,
        table1_smnist,
        table1_scifar,
        table2_pmnist,
        fig3_trainability,
        app_b_inits,
        app_c_plstm,
        budget,
        threshold,
        curriculum,
        gradflow,
        app_d_optim,
        app_d_chrono,
        app_d_size,
        candidate,
        truncated,
        frontier,
    )
}

from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS

CURRICULUM = PRESETS["scifar-curriculum"].changed(epochs=200)  # with 100 the gates are half open when they are opened

EXPERIMENT = Experiment(
    name="curriculum",
    title="Gates that open until an LSTM is left (Fig. 6)",
    question="Does an LSTM converge sooner if it begins as a g-LSTM with narrow gates?",
    arms=(
        Arm("curriculum", "curriculum", CURRICULUM, probes=("as an LSTM",), twin="lstm"),
        Arm("lstm", "LSTM", CURRICULUM.changed(cell="lstm", curriculum=False)),
    ),
)

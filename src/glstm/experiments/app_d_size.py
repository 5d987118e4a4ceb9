from glstm.experiments.experiment import Arm, Experiment
from glstm.experiments.protocol import by_the_paper
from glstm.experiments.table1_smnist import LONGER, LSTM, PAPER

MORE = 220  # epochs: the paper, too, gave its LSTM of 25 units 100 more


def pair(units: int, gated: float, plain: float) -> tuple[Arm, Arm]:
    """Both networks of a size. Small ones are searched at their size, large ones have what was chosen at 110 units."""
    small = units < 110
    g_lstm, lstm = PAPER.changed(units=units), LSTM.changed(units=units)
    searched = (None, lstm) if small else (PAPER, LSTM)
    lstm = lstm.changed(epochs=MORE) if small else lstm
    twin = f"lstm-{units}"
    return (
        by_the_paper(f"glstm-{units}", f"g-LSTM, {units} units", g_lstm, searched[0], paper=gated, twin=twin),
        by_the_paper(twin, f"LSTM, {units} units", lstm, searched[1], paper=plain),
    )


EXPERIMENT = Experiment(
    name="appD-size",
    title="Smaller and larger networks (Appendix D)",
    question="Does it hold for other sizes?",
    arms=(
        *pair(25, 0.0279, 0.0358),
        by_the_paper("glstm-110", "g-LSTM, 110 units", PAPER, paper=0.0135, twin="lstm-110"),
        by_the_paper("lstm-110", "LSTM, 110 units", LONGER, LSTM, paper=0.0181),
        *pair(220, 0.0110, 0.0134),
    ),
)

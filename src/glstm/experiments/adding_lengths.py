from glstm.experiments.experiment import Arm, Experiment
from glstm.recipes import PRESETS, Recipe

EPOCHS = 300  # of 50 updates: enough to see who learns
STARTS = {
    "orthogonal": {"init": "orthogonal"},
    "xavier": {"init": "xavier"},
    "chrono": {"init": "orthogonal", "chrono": None},  # biases for memories as long as the sequence
}
OF_TABLE_1 = {1000: PRESETS["adding-1000"], 2000: PRESETS["adding-2000"]}
CHOSEN_THERE = {("glstm", "orthogonal"), ("lstm", "xavier")}  # these are trained for Table 1 already, for longer


def gated(steps: int) -> Recipe:
    """With the gates of Table 1; at other lengths those of N = 1000, scaled."""
    return OF_TABLE_1[steps] if steps in OF_TABLE_1 else OF_TABLE_1[1000].at_length(steps)


def one(cell: str, steps: int, name: str, **more) -> Arm:
    start = STARTS[name] | ({"chrono": float(steps)} if name == "chrono" else {})
    recipe, known = gated(steps).changed(cell=cell), steps in OF_TABLE_1 and (cell, name) in CHOSEN_THERE
    recipe = recipe.changed(**start, **({} if known else {"epochs": EPOCHS}))
    said = f"{'g-LSTM' if cell == 'glstm' else 'LSTM'}, N = {steps}, {name}"
    return Arm(f"{cell}-{steps}-{name}", said, recipe, at_epoch=EPOCHS if known else None, **more)


def pair(steps: int, name: str) -> tuple[Arm, Arm]:
    """Both networks from one start."""
    plain = one("lstm", steps, name)
    return one("glstm", steps, name, twin=plain.key), plain


EXPERIMENT = Experiment(
    name="adding-lengths",
    title="Adding task, short and long, from three starts (ours)",
    question="From which length on do gates help, and how much is it a matter of the start?",
    arms=tuple(arm for steps in (100, 250, 500, 1000, 2000) for name in STARTS for arm in pair(steps, name)),
)

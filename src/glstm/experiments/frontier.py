from glstm.experiments.experiment import SEEDS, Arm, Experiment
from glstm.recipes import PRESETS

V_T = 0.01
BASE = PRESETS["smnist-budget"].changed(options={"threshold": V_T}, schedule="cosine", decay=0.9)


def point(sigma: float, budget: float, seeds: tuple[int, ...] = SEEDS[:1], shift: int = 0, **more: float) -> Arm:
    """One network, or one for each seed, trained with the threshold on."""
    moved = {"shift": shift} if shift else {}
    recipe = BASE.changed(gate={"sigma": float(sigma)}, budget=float(budget), data=moved, **more)
    said = {"sigma": sigma, "lambda": budget, **moved, **more}
    words = [f"{name} {value:g}" for name, value in said.items()]
    key = "-".join(words).replace(" ", "-")
    return Arm(key, ", ".join(words), recipe, seeds=seeds, probes=("thresholds",), at_threshold=V_T)


EXPERIMENT = Experiment(
    name="frontier",
    title="Error against operations (ours)",
    question="How few operations does sequential MNIST take at a given error?",
    arms=(
        # Images that move: without, as further down, all of these overfit.
        point(25, 5, SEEDS, shift=1),
        point(25, 3, SEEDS, shift=1),
        point(25, 1, SEEDS, shift=1),
        point(25, 1, SEEDS, shift=2),
        point(25, 3, SEEDS, shift=1, units=220),
        *(point(sigma, budget, shift=1) for sigma, budget in ((25, 10), (250, 3))),
        *(point(250, budget) for budget in (1, 3)),
        *(point(100, budget) for budget in (0.3, 1, 3)),
        *(point(50, budget) for budget in (1, 3, 10)),
        *(point(25, budget) for budget in (1, 3)),
        *(point(sigma, budget, decay=0.5) for sigma, budget in ((250, 1), (100, 1), (50, 3), (50, 10), (25, 3))),
        *(
            point(sigma, budget, budget_epochs=60)
            for sigma, budget in ((250, 3), (100, 10), (50, 10), (50, 30), (25, 10))
        ),
    ),
    thresholds=(0.0, 0.003, 0.01, 0.03, 0.1),
)

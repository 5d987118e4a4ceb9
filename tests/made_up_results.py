"""Results of every experiment, made up: what a report says of them is known beforehand."""

from dataclasses import replace

from glstm.experiments import EXPERIMENTS
from glstm.recipes import Recipe
from glstm.report.results import LEARNT, Arm, Missing, Result, Run, Search, Try

MACHINE = {"device": "a device", "commit": "0123456789abcdef", "software": {"torch": "2"}}
GAUSSIAN = {
    "before": {"mu": [1.0, 50.0], "sigma": [1.0, 1.0]},
    "after": {"mu": [11.0, 60.4], "sigma": [4.0, 0.01]},  # the second is at k < 0.01 at every step
}
PHASED = {when: {"tau": [9.0], "s": [1.0], "r": [0.1]} for when in ("before", "after")}


def made_up(gated_learns_at: int = 10, plain_learns_at: int = 20, closed_error: float = 0.002) -> list[Result]:
    """Every experiment, its networks learning their task at the epoch given; budgets end at `closed_error`."""
    results = []
    for one in EXPERIMENTS.values():
        arms = []
        for arm in one.arms:
            times = gated_learns_at, plain_learns_at, closed_error
            recipes = arm.recipes(arm.tries[0] if arm.tries else None)
            runs = [
                Run(network(recipe, arm.probes, one.thresholds, number, *times))
                for number, recipe in enumerate(recipes)
            ]
            search = Search([Try(change, False, 0.02, 1e6) for change in arm.tries], 0) if arm.tries else None
            figures_of = arm.paper, arm.at_epoch, arm.at_threshold
            arms.append(Arm(arm.key, arm.name, arm.twin, *figures_of, runs, arm.track, search, arm.most_operations))
        metric = ("mse", False) if one.arms[0].recipe.task == "adding" else ("error", True)
        results.append(Result(one.name, one.title, one.question, False, arms, [], *metric))
    return results


def network(recipe: Recipe, probes, thresholds, number, gated_learns_at, plain_learns_at, closed_error) -> dict:
    gated = recipe.cell != "lstm"
    level, learnt = LEARNT[recipe.task], gated_learns_at if gated else plain_learns_at
    end = (0.1 if gated else 0.2) * level * (1 + 0.01 * number)
    epochs = list(range(1, recipe.epochs + 1))
    open_share = 0.1 if recipe.budget else 0.4
    closed = {"error": closed_error, "open_share": open_share, "paper_ops": 8e6, "cached_ops": 1e6, "lstm_ops": 79e6}
    found = {
        "gates": PHASED if recipe.cell == "plstm" else GAUSSIAN,
        "thresholds": [{"threshold": v_t, **closed} for v_t in thresholds],
        "gradient flow": [2.0 if gated else 1.0] * 784,
        "as an LSTM": {"error": end},
        "one sequence": {"x": [0.0, 1.0], "units": [{"unit": 0, "k": [0.0, 1.0], "c": [0.0, 0.5], "h": [0.0, 0.1]}]},
        "pruned": {"units": 110, "units_left": 90, "weights": 1000, "weights_left": 700, "error": closed_error},
    }
    return {
        "recipe": recipe.as_dict(),
        "steps": recipe.data.get("steps", 784),
        "metric": "error",
        "as_percent": recipe.task != "adding",
        "diverged": False,
        "operations": 79e6 * recipe.units / 110,
        "curve": {
            "epoch": epochs,
            "test_error": [2 * level if epoch < learnt else end for epoch in epochs],
            "mean_k": [open_share for _ in epochs],
        },
        "probes": {name: found[name] for name in probes},
        "trained": [{"machine": MACHINE, "epochs": recipe.epochs, "seconds": 1.0}],
    }


def named(results: list[Result], name: str) -> Result:
    return next(result for result in results if result.name == name)


def unfinished(result: Result, *keys: str) -> Result:
    """These arms have only searches, of which the last of the tries is not trained."""
    gone = []
    for arm in result.arms:
        if arm.key in keys and arm.search:
            *first, last = arm.search.tries
            tries = [*first, replace(last, validation=None, operations=None)]
            gone.append(Missing(arm.key, arm.name, arm.track, Search(tries, None)))
    return replace(result, arms=[arm for arm in result.arms if arm.key not in keys], missing=gone)

"""Results are a memory: a network that they hold need not be trained again, on whichever machine the work goes on.

Of a network that was tested they hold the whole summary, of one that decided between recipes what validation said.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from glstm.errors import UserError
from glstm.experiments.experiment import Experiment
from glstm.experiments.probes import joined
from glstm.experiments.store import Store, name_of
from glstm.forms import read_json
from glstm.recipes import Recipe
from glstm.report import result_form

OF_THE_MACHINE = {"seconds", "test_seconds", "together"}  # columns of a curve


def adopt(experiments: Collection[Experiment], folder: Path, store: Store) -> int:
    """Put what the results in this folder say into the store, where it knows nothing yet; of how many networks.

    All of them are read, whichever experiments are asked for: a network may have been trained for another one.
    """
    count = 0
    for path in sorted(folder.glob("*.json")):
        advice = "move it elsewhere, or choose another --out"
        result = read_json(path, "a result of glstm reproduce", result_form.result, advice)
        try:
            count += _adopt_tested(result, store) + _adopt_deciding(experiments, result, store)
        except UserError as error:
            raise UserError(f"{path} cannot be used, for {error}; {advice}") from None
    return count


def _adopt_tested(result: dict[str, Any], store: Store) -> int:
    count = 0
    for summary in (run for arm in (*result["arms"], *result["missing"]) for run in arm.get("runs", ())):
        recipe = Recipe.from_dict(summary["recipe"])
        with store.claim([recipe]) as ours:  # one that another process trains is left to it
            if not ours or store.has_begun(recipe):
                continue
            known = store.summary(recipe)
            if known is None:
                store.write_summary(recipe, summary)
                count += 1
            elif _same_training(known, summary):  # of which another experiment measured more
                probes = joined(known["probes"], summary["probes"])
                if probes != known["probes"]:
                    store.write_summary(recipe, {**known, "probes": probes})
    return count


def _same_training(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two networks of one recipe learnt alike, epoch by epoch: one may have been trained twice. What depends on
    the machine, and what only a later version records, does not count."""
    common = (one["curve"].keys() & other["curve"].keys()) - OF_THE_MACHINE
    return all(one["curve"][name] == other["curve"][name] for name in common)


def _adopt_deciding(experiments: Collection[Experiment], result: dict[str, Any], store: Store) -> int:
    """By the networks' names, which are made of all values: one that decided about another recipe is not mistaken."""
    arms = [arm for experiment in experiments for arm in experiment.arms]
    wanted = {name_of(recipe): recipe for arm in arms for some in arm.searched() for recipe in some}
    searches = [arm["search"] for arm in (*result["arms"], *result["missing"]) if arm["search"]]
    count = 0
    for one in (one for search in searches for one in search["tries"]):
        verdict = {name: one[name] for name in ("validation", "operations", "diverged")}
        if verdict["validation"] is None and not verdict["diverged"]:
            continue
        for recipe in (wanted[name] for name in one.get("networks", ()) if name in wanted):
            with store.claim([recipe]) as ours:
                known = store.verdict(recipe) or store.summary(recipe) or store.has_begun(recipe)
                if ours and not known:
                    store.write_verdict(recipe, verdict)
                    count += 1
    return count

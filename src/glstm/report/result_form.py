"""What a result of `glstm reproduce` and the summary of a trained network must look like."""

from collections.abc import Mapping
from typing import Any

from glstm.forms import anything, entries, flag, items, maybe, measured, number, text, whole, wrong

LARGEST = 1e300  # of a figure: so that a mean of some of them is finite
MOST_ARMS = 1000
MOST_STEPS = 2**31
MOST_SHOWN = 10  # units in a picture
figure, figures = number(-LARGEST, LARGEST), items(number(-LARGEST, LARGEST))
things = entries({}, others=anything)

machine = entries({}, {"device": text, "commit": text, "software": entries({}, others=text)}, others=anything)
_values = entries({}, others=figures)
_known = items(maybe(figure))  # None: of networks that are not tested, or have no gates
_tested = entries(
    {"threshold": number(0, 1), "error": figure, "open_share": figure, "cached_ops": number(1, LARGEST)},
    {"lstm_ops": number(1, LARGEST), "paper_ops": number(0, LARGEST)},
    others=measured,
)
_sequence = entries(
    {
        "x": items(figure, least=1),
        "units": items(
            entries({"unit": whole(0)} | dict.fromkeys(("k", "c", "h"), items(figure, least=1))), most=MOST_SHOWN
        ),
    }
)
_summary = entries(
    {
        "recipe": entries(
            {"epochs": whole(1)}, {"task": text, "cell": text, "data": things, "options": things}, others=anything
        ),
        "steps": whole(1, MOST_STEPS),
        "metric": text,
        "as_percent": flag,
        "diverged": flag,
        "operations": maybe(number(0, LARGEST)),
        "curve": entries(
            {}, {"epoch": items(whole(1)), "test_error": _known, "mean_k": _known}, others=items(maybe(measured))
        ),
        "probes": entries(
            {},
            {
                "gates": entries({"before": _values, "after": _values}),
                "thresholds": items(_tested),
                "gradient flow": items(figure, least=1),
                "as an LSTM": entries({"error": figure}, others=measured),
                "one sequence": _sequence,
                "pruned": entries(
                    {"error": figure} | dict.fromkeys(("units", "units_left", "weights", "weights_left"), whole(0))
                ),
            },
            others=anything,
        ),
        "trained": items(
            entries(
                {
                    "machine": machine,
                    "seconds": number(0, LARGEST),
                },
                others=anything,
            )
        ),
    },
    others=anything,
)


def summary(value: Any, name: str) -> None:
    """Of one trained network."""
    _summary(value, name)
    inside = f"{name}." if name else ""
    curve, epochs = value["curve"], value["recipe"]["epochs"]
    lengths = dict.fromkeys(("epoch", "test_error", "mean_k"), 0)  # of one that diverged in its first epoch
    lengths |= {name: len(column) for name, column in curve.items()}
    if len(set(lengths.values())) > 1 or lengths["epoch"] > epochs or not (lengths["epoch"] or value["diverged"]):
        raise wrong(lengths, f"the length of {inside}curve", f"the same for all its columns, and at most {epochs}")
    if "gates" in value["probes"]:
        for when, values in value["probes"]["gates"].items():
            _gates(values, f"{inside}probes.gates.{when}")


def tested(value: Any, name: str) -> None:
    """Of a network whose figures are shown: it has been tested after every epoch."""
    summary(value, name)
    errors, epochs = value["curve"].get("test_error", []), value["recipe"]["epochs"]
    if not value["diverged"] and (None in errors or len(errors) < epochs):
        raise wrong(errors[-1:], f"{name}.curve.test_error", f"a number for each of {epochs} epochs")


_search = entries(
    {
        "chosen": maybe(whole(0)),
        "tries": items(
            entries(
                {
                    "change": entries({}, {"lr": figure, "epochs": whole(1), "data": things}, others=anything),
                    "diverged": flag,
                    "validation": maybe(figure),
                    "operations": maybe(number(0, LARGEST)),
                },
                {"networks": items(text)},  # names in a store
            ),
            least=1,
        ),
    },
    {"epochs": maybe(whole(1)), "steps": maybe(whole(1))},
    others=anything,
)


def search(value: Any, name: str) -> None:
    """What validation says of the recipes that were tried."""
    _search(value, name)
    if value["chosen"] is not None and value["chosen"] >= len(value["tries"]):
        raise wrong(value["chosen"], f"{name}.chosen", "the number of one of the tries")


def _gates(values: Mapping[str, Any], name: str) -> None:
    """The values of a gate that the report can draw: one of each for each unit."""
    known = {"mu", "sigma"} <= set(values) or {"tau", "s", "r"} <= set(values)
    if not known or len({len(one) for one in values.values()}) != 1 or not len(next(iter(values.values()))):
        raise wrong(sorted(values), name, "the values of a gate, as many of each as there are units")


_result = entries(
    {
        "name": text,
        "title": text,
        "question": text,
        "small": flag,
        "missing": items(
            entries(
                {"key": text, "name": text, "track": text, "search": maybe(search)},
                {"seeds": items(whole(0), least=1), "runs": items(tested, least=1)},  # those that are finished
            ),
            most=MOST_ARMS,
        ),
        "arms": items(
            entries(
                {
                    "key": text,
                    "name": text,
                    "twin": maybe(text),
                    "paper": maybe(figure),
                    "at_epoch": maybe(whole(1)),
                    "at_threshold": maybe(number(0, 1)),
                    "track": text,
                    "search": maybe(search),
                    "runs": items(tested, least=1),
                },
                others=anything,
            ),
            most=MOST_ARMS,
        ),
    },
    {"metric": text, "as_percent": flag},
    others=anything,
)


def result(value: Any, name: str) -> None:
    """Of one experiment."""
    _result(value, name)
    for number_of, arm in enumerate(value["arms"]):
        measured_runs = [(place, run) for place, run in enumerate(arm["runs"]) if not run["diverged"]]
        for place, run in measured_runs:
            where = f"arms[{number_of}].runs[{place}]"
            if arm["at_epoch"] is not None and arm["at_epoch"] > run["recipe"]["epochs"]:
                raise wrong(arm["at_epoch"], f"arms[{number_of}].at_epoch", "one of the epochs of its runs")
            tested = [row["threshold"] for row in run["probes"].get("thresholds", ())]
            if arm["at_threshold"] is not None and arm["at_threshold"] not in tested:
                raise ValueError(f"{where} was not tested at the threshold of its arm, {arm['at_threshold']}")
            first = measured_runs[0][1]["probes"]
            if [row["threshold"] for row in first.get("thresholds", ())] != tested:
                raise ValueError(f"{where} was tested at other thresholds than the first run of its arm")
            if set(first) != set(run["probes"]):
                raise ValueError(f"{where} was measured in another way than the first run of its arm")

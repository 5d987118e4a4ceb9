"""What a result of `glstm reproduce` and the summary of a trained network must look like."""

from collections.abc import Mapping
from typing import Any

from glstm.forms import anything, entries, flag, items, maybe, measured, number, text, whole, wrong

LARGEST = 1e300  # of a figure: so that a mean of some of them is finite
MOST_ARMS = 1000
MOST_STEPS = 2**31
figure, figures = number(-LARGEST, LARGEST), items(number(-LARGEST, LARGEST))
things = entries({}, others=anything)

machine = entries({}, {"device": text, "commit": text, "software": entries({}, others=text)}, others=anything)
_values = entries({}, others=figures)
_tested = entries(
    {"threshold": number(0, 1), "error": figure, "open_share": figure, "cached_ops": number(1, LARGEST)},
    {"lstm_ops": number(1, LARGEST), "paper_ops": number(0, LARGEST)},
    others=measured,
)
_summary = entries(
    {
        "recipe": entries(
            {"epochs": whole(1)}, {"task": text, "cell": text, "data": things, "options": things}, others=anything
        ),
        "steps": whole(1, MOST_STEPS),
        "metric": text,
        "as_percent": flag,
        "curve": entries(
            {"epoch": items(whole(1)), "test_error": figures, "mean_k": figures}, others=items(maybe(measured))
        ),
        "probes": entries(
            {},
            {
                "gates": entries({"before": _values, "after": _values}),
                "thresholds": items(_tested),
                "gradient flow": items(figure, least=1),
                "as an LSTM": entries({"error": figure}, others=measured),
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
    for column in ("epoch", "test_error", "mean_k"):
        if len(curve[column]) != epochs:
            raise wrong(len(curve[column]), f"the length of {inside}curve.{column}", f"{epochs}, the recipe's epochs")
    if "gates" in value["probes"]:
        for when, values in value["probes"]["gates"].items():
            _gates(values, f"{inside}probes.gates.{when}")


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
        "missing": items(text),
        "arms": items(
            entries(
                {
                    "key": text,
                    "name": text,
                    "twin": maybe(text),
                    "paper": maybe(figure),
                    "at_epoch": maybe(whole(1)),
                    "at_threshold": maybe(number(0, 1)),
                    "runs": items(summary, least=1),
                },
                others=anything,
            ),
            least=1,
            most=MOST_ARMS,
        ),
    },
    others=anything,
)


def result(value: Any, name: str) -> None:
    """Of one experiment."""
    _result(value, name)
    for number_of, arm in enumerate(value["arms"]):
        for place, run in enumerate(arm["runs"]):
            where = f"arms[{number_of}].runs[{place}]"
            if arm["at_epoch"] is not None and arm["at_epoch"] > run["recipe"]["epochs"]:
                raise wrong(arm["at_epoch"], f"arms[{number_of}].at_epoch", "one of the epochs of its runs")
            tested = [row["threshold"] for row in run["probes"].get("thresholds", ())]
            if arm["at_threshold"] is not None and arm["at_threshold"] not in tested:
                raise ValueError(f"{where} was not tested at the threshold of its arm, {arm['at_threshold']}")
            first = arm["runs"][0]["probes"]
            if [row["threshold"] for row in first.get("thresholds", ())] != tested:
                raise ValueError(f"{where} was tested at other thresholds than the first run of its arm")
            if set(first) != set(run["probes"]):
                raise ValueError(f"{where} was measured in another way than the first run of its arm")

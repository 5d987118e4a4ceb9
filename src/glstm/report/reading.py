"""Results are read here, and checked: a file that is not one is named, with what is wrong in it."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from glstm.errors import UserError
from glstm.forms import in_short, parse, read_text
from glstm.report import result_form
from glstm.report.results import TRACKS, Arm, Missing, Result, Run, Search, Try

NUMBER, NONE = (int, float), type(None)
WORDS = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "an object",
    NONE: "null",
}  # fmt: skip

RESULT = {"name": str, "title": str, "question": str, "small": bool, "missing": list, "arms": list}
ARM = {
    "key": str, "name": str, "twin": (str, NONE), "paper": (*NUMBER, NONE), "at_epoch": (int, NONE),
    "at_threshold": (*NUMBER, NONE), "track": str, "search": (dict, NONE), "most_operations": (*NUMBER, NONE),
    "runs": list,
}  # fmt: skip
MISSING = {"key": str, "name": str, "track": str, "search": (dict, NONE)}
SEARCH = {"chosen": (int, NONE), "tries": list}
TRY = {"change": dict, "diverged": bool, "validation": (*NUMBER, NONE), "operations": (*NUMBER, NONE)}
RUN = {
    "recipe": dict, "steps": int, "metric": str, "as_percent": bool, "diverged": bool, "operations": (*NUMBER, NONE),
    "curve": dict, "probes": dict, "trained": list,
}  # fmt: skip
RECIPE = {"task": str, "cell": str, "units": int, "epochs": int, "data": dict}
CURVE = {"epoch": list, "test_error": list, "mean_k": list}
TRAINED = {"machine": dict, "seconds": NUMBER}
MACHINE = {"device": str, "commit": str, "software": dict}


class Malformed(Exception):
    """Says what is wrong, without the file's name."""


def load(folder: Path, order: list[str]) -> list[Result]:
    """Every result in the folder, in the order given."""
    found = {path.stem: read(path) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise UserError(f"there are no results in {folder}: glstm reproduce makes them")
    names = [name for name in order if name in found] + [name for name in found if name not in order]
    return [found[name] for name in names]


def read(path: Path) -> Result:
    what = f"{path} is not a result of glstm reproduce"
    try:
        content = parse(read_text(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{what}: it cannot be read ({in_short(error)})") from None
    unsound, found = _unsound(content), None
    try:
        found = _result(content)
    except Malformed as error:
        unsound = str(error)
    except (TypeError, LookupError, ValueError, ArithmeticError, AttributeError):
        if unsound is None:
            raise
    if unsound is not None or found is None:
        raise UserError(f"{what}: {unsound}") from None
    return found


def _unsound(content: Any) -> str | None:
    """What is wrong deep inside, where nothing is read but numbers."""
    try:
        result_form.result(content, "")
    except ValueError as error:
        return in_short(error)
    return None


def _checked(content: Any, fields: dict[str, Any], where: str) -> dict[str, Any]:
    """The content, if it is an object with these fields."""
    if not isinstance(content, dict):
        raise Malformed(f"{where} must be an object, not {_word(content)}")
    for name, kinds in fields.items():
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if name not in content:
            raise Malformed(f"{where} has no '{name}'")
        value = content[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(dict.fromkeys(WORDS[kind] for kind in kinds if kind is not int or float not in kinds))
            raise Malformed(f"'{name}' of {where} must be {wanted}, not {_word(value)}")
    return content


def _word(value: Any) -> str:
    return WORDS.get(type(value), "something else")


def _result(content: Any) -> Result:
    content = _checked(content, RESULT, "it")
    arms = [_arm(arm, f"arm {number}") for number, arm in enumerate(content["arms"], 1)]
    missing = [_missing(arm, f"missing arm {number}") for number, arm in enumerate(content["missing"], 1)]
    runs = [run.summary for arm in (*arms, *missing) for run in arm.runs]
    metrics = {(run["metric"], run["as_percent"]) for run in runs}
    if len(metrics) > 1:
        raise Malformed("its networks have different metrics")
    said = (content.get("metric", "error"), content.get("as_percent", True))  # of networks that are not finished
    named = content["name"], content["title"], content["question"], content["small"]
    result = Result(*named, arms, missing, *(metrics.pop() if metrics else said))
    _check_keys(result)
    return result


def _missing(content: Any, where: str) -> Missing:
    content = _checked(content, MISSING, where)
    runs = [Run(_run(run, f"run {number} of {where}")) for number, run in enumerate(content.get("runs", ()), 1)]
    known = _track(content, where), _search(content["search"], where)
    return Missing(content["key"], content["name"], *known, len(content.get("seeds", ())), runs)


def _arm(content: Any, where: str) -> Arm:
    content = _checked(content, ARM, where)
    where = f"the arm {content['key']!r}"
    if not content["runs"]:
        raise Malformed(f"{where} has no runs")
    runs = [Run(_run(run, f"run {number} of {where}")) for number, run in enumerate(content["runs"], 1)]
    arm = Arm(
        content["key"], content["name"], content["twin"], content["paper"], content["at_epoch"],
        content["at_threshold"], runs, _track(content, where), _search(content["search"], where),
        content["most_operations"],
    )  # fmt: skip
    if arm.search is not None and arm.search.chosen is None:
        raise Malformed(f"{where} has runs, but its search chose nothing")
    for run in arm.finished:
        if arm.epochs > len(run.curve["test_error"]) or arm.epochs < 1:
            raise Malformed(f"{where} is quoted at epoch {arm.epochs}, but a curve has {len(run.curve['test_error'])}")
        tested = [row["threshold"] for row in run.summary["probes"].get("thresholds", ())]
        if arm.at_threshold is not None and arm.at_threshold not in tested:
            raise Malformed(f"{where} is quoted at a threshold of {arm.at_threshold}, at which it was not tested")
    return arm


def _track(content: dict[str, Any], where: str) -> str:
    if content["track"] not in TRACKS:
        raise Malformed(f"the track of {where} must be one of {', '.join(TRACKS)}, but is {content['track']!r}")
    return content["track"]


def _search(content: Any, where: str) -> Search | None:
    if content is None:
        return None
    where = f"the search of {where}"
    content = _checked(content, SEARCH, where)
    found = [_checked(one, TRY, f"try {number} of {where}") for number, one in enumerate(content["tries"], 1)]
    if content["chosen"] is not None and not 0 <= content["chosen"] < len(found):
        raise Malformed(f"{where} chose number {content['chosen']} of {len(found)} tries, counted from 0")
    lengths = {name: content.get(name) for name in ("epochs", "steps")}
    return Search([Try(**{name: one[name] for name in TRY}) for one in found], content["chosen"], **lengths)


def _run(content: Any, where: str) -> dict[str, Any]:
    content = _checked(content, RUN, where)
    _checked(content["recipe"], RECIPE, f"the recipe of {where}")
    for part in content["trained"]:
        _checked(_checked(part, TRAINED, f"'trained' of {where}")["machine"], MACHINE, f"the machine of {where}")
    if content["diverged"]:  # it may have stopped before the first epoch's end, and its errors may be no numbers
        columns = {name: content["curve"].get(name) or [] for name in CURVE}
        content["curve"] = {name: [inf if value is None else value for value in columns[name]] for name in CURVE}
    curve = _checked(content["curve"], CURVE, f"the curve of {where}")
    lengths = {len(curve[name]) for name in CURVE}
    if len(lengths) > 1 or (lengths == {0} and not content["diverged"]):
        raise Malformed(f"the columns of the curve of {where} must have one length, of an epoch or more")
    without_gates = all(value is None for value in curve["mean_k"])
    numbers = [name for name in CURVE if not (name == "mean_k" and without_gates)]
    if any(not isinstance(value, NUMBER) for name in numbers for value in curve[name]):
        raise Malformed(f"the curve of {where} must be of numbers")
    for problem in _problems(content["probes"], where):
        raise Malformed(problem)
    return content


def _problems(probes: dict[str, Any], where: str) -> Iterator[str]:
    """What is wrong with the measurements that the report uses."""
    rows = probes.get("thresholds", [])
    columns = ("threshold", "error", "open_share", "cached_ops")
    if not isinstance(rows, list) or any(not isinstance(row, dict) or not set(columns) <= set(row) for row in rows):
        yield f"'thresholds' of {where} must be a list of objects with {', '.join(columns)}"
    flow = probes.get("gradient flow", [])
    if not isinstance(flow, list) or any(not isinstance(value, NUMBER) for value in flow):
        yield f"'gradient flow' of {where} must be a list of numbers"
    opened = probes.get("as an LSTM", {"error": 0})
    if not isinstance(opened, dict) or not isinstance(opened.get("error"), NUMBER):
        yield f"'as an LSTM' of {where} must have an error"
    gates = probes.get("gates", {"before": {}, "after": {}})
    if not isinstance(gates, dict) or not all(isinstance(gates.get(when), dict) for when in ("before", "after")):
        yield f"'gates' of {where} must have 'before' and 'after'"


def _check_keys(result: Result) -> None:
    """Claims find arms by their keys, so keys must be unique; and a network is compared within its track. An arm that
    was tested may be missing as well, as it is asked for now."""
    for some in (result.arms, result.missing):
        keys = [one.key for one in some]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise Malformed(f"two arms have the key {twice[0]!r}; each must have its own")
    tracks = {one.key: one.track for one in (*result.missing, *result.arms)}
    for arm in result.arms:
        if arm.twin is not None and arm.twin not in tracks:
            raise Malformed(f"{arm.key!r} is compared with {arm.twin!r}, which is no arm's key there")
        if arm.twin is not None and tracks[arm.twin] != arm.track:
            raise Malformed(f"{arm.key!r} is compared with {arm.twin!r}, which is of another track")

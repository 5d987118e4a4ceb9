"""The tables of the benchmarks for documents, from their JSON."""

from glstm.bench import gpu
from glstm.bench.cpu import EAGER, FLUSHING, ONNX, OURS, TORCH

NAMES = (OURS, TORCH, ONNX, EAGER)
RIVALS = ("cell", "units", "way", "parameters", "operations", "CUDA: a step", "an epoch", "CPU: inference", "training")


def table(results: list[dict]) -> list[str]:
    """Lines of Markdown. In a cell: as it comes / with flushing; the ratio is to the fastest peer of the same kind."""
    return ["| case | " + " | ".join(NAMES) + " | ratio |", "|---" * (len(NAMES) + 2) + "|", *map(_line, results)]


def _line(result: dict) -> str:
    cells = [both(*(_ms(result, name + kind) for kind in ("", FLUSHING))) for name in NAMES]
    ratios = [_ratio(result, flushing) for flushing in (False, True)]
    return f"| {result['name']} | {' | '.join(cells)} | **{both(*ratios)}** |"


def both(as_it_comes: str, flushing: str) -> str:
    return as_it_comes if not flushing else f"{as_it_comes} / {flushing}"


def _ms(result: dict, name: str) -> str:
    return milliseconds(result["timings"][name]["seconds"]) if name in result["timings"] else ""


def milliseconds(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.3g} ms"


def _ratio(result: dict, flushing: bool) -> str:
    found = [ratio for name, ratio in result["ratios"].items() if name.endswith(FLUSHING) == flushing]
    return f"{min(found):.1f}" if found else ""


def gpu_table(results: list[dict]) -> list[str]:
    """Lines of Markdown. Ratios are cuDNN's to the layer's, in training with all outputs and in inference."""
    names = ["case", *gpu.NAMES, "ratio in training", "ratio in inference", "GB"]
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|", *map(_gpu_line, results)]


def _gpu_line(result: dict) -> str:
    seconds, ratios = result["seconds"], result["ratios"]
    cells = [milliseconds(seconds[name]) if name in seconds else "" for name in gpu.NAMES]
    cells += [f"**{ratios[name]:.1f}**" if name in ratios else "" for name in (gpu.CUDNN, gpu.CUDNN_INFERENCE)]
    return f"| {result['name']} | {' | '.join(cells)} | {result['gigabytes']:.2g} |"


def cells_of(line: str) -> list[str]:
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def rivals_table(results: list[dict]) -> list[str]:
    """Lines of Markdown: a training step and an epoch on CUDA; on the CPU, inference and training of a sequence."""
    return ["| " + " | ".join(RIVALS) + " |", "|---" * len(RIVALS) + "|", *map(_rival, results)]


def _rival(result: dict) -> str:
    def cell(name: str, words) -> str:
        return "" if result[name] is None else words(result[name])

    cells = (
        result["name"],
        result["size"],
        result["way"],
        cell("parameters", lambda count: f"{count:,}"),
        cell("operations", lambda count: f"{count / 1e6:.1f} M"),
        cell("cuda_step", milliseconds),
        cell("cuda_epoch", lambda seconds: f"{seconds:.1f} s"),
        cell("cpu_inference", milliseconds),
        cell("cpu_training", milliseconds),
    )
    return f"| {' | '.join(cells)} |"


def rivals_that_failed(results: list[dict]) -> list[str]:
    return [f"- {one['name']}, {what}: {reason}" for one in results for what, reason in one["failed"].items()]


def learning_table(runs: list[dict]) -> list[str]:
    """Lines of Markdown: test errors of short trainings after 1, 3 and all epochs, and what a sequence then costs."""
    last = max(len(run["errors"]) for run in runs)
    names = ("cell", "units", "optimiser", "batch", "epoch 1", "epoch 3", f"epoch {last}", "updates", "operations")
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|", *map(_learned, runs)]


def _learned(run: dict) -> str:
    settings, layers = run["settings"], run["layers"]
    errors = [f"{100 * run['errors'][at]:.1f} %" for at in (0, 2, -1)]
    cells = (
        run["cell"],
        str(run["units"]) if layers == 1 else f"{layers} x {run['units']}",
        f"{settings['optimizer']}, {settings['lr']:g}",
        str(settings["batch"]),
        *errors,
        f"{100 * run['updates'][-1]:.0f} %",
        f"{run['operations'] / 1e6:.1f} M",
    )
    return f"| {' | '.join(cells)} |"

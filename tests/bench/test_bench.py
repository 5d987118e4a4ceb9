"""The benchmark itself: peers that compute the same, honest medians, a whole run in a tiny form."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from glstm.bench import choice, cpu, gpu
from glstm.bench.flushing import Flushing
from glstm.bench.machine import processor
from glstm.bench.markdown import cells_of, gpu_table, table
from glstm.bench.peers import onnx_lstm, onnx_session
from glstm.bench.race import Timing, race
from glstm.cli.main import app
from glstm.errors import UserError

TINY = {"steps": 12, "hidden": 5}


@pytest.mark.parametrize("batch", [1, 3])
def test_onnx_runtime_computes_what_torch_computes(batch):
    peer = nn.LSTM(2, 5)
    x = torch.randn(9, batch, 2)
    (h,) = onnx_session(onnx_lstm(peer), 1).run(None, {"x": x.numpy()})
    assert torch.allclose(torch.from_numpy(h), peer(x)[1][0], atol=1e-6)
    (every,) = onnx_session(onnx_lstm(peer, outputs=True), 1).run(None, {"x": x.numpy()})
    assert torch.allclose(torch.from_numpy(every).squeeze(1), peer(x)[0], atol=1e-6)


def test_the_eager_loop_computes_what_the_layer_computes():
    layer = cpu.build_layer(cpu.Case("inference", 3, 0.3, **TINY))
    x = torch.randn(12, 3, 1)
    assert torch.allclose(cpu.run_eagerly(layer, x, outputs=False), layer(x)[1][0][0], atol=1e-6)
    assert torch.allclose(cpu.run_eagerly(layer, x, outputs=True), layer(x)[0], atol=1e-6)
    layer.zero_grad()
    cpu.run_eagerly(layer, x, outputs=False).sum().backward()
    by_hand = layer.mu_l0.grad.clone()
    layer.zero_grad()
    layer(x)[1][0].sum().backward()
    assert torch.allclose(layer.mu_l0.grad, by_hand, atol=1e-5)


@pytest.mark.parametrize("openness", [0.02, 0.082, 0.5])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_layer_is_as_open_as_it_should_be(openness, spread):
    layer = cpu.build_layer(cpu.Case("inference", 1, openness, spread=spread))
    measured = float((layer.openness(784) > 0).float().mean())
    assert measured == pytest.approx(openness, rel=0.02 if spread == 0 else 0.3)


def test_a_race_names_the_better_number_of_threads():
    seen = []

    def contender(threads):
        def call():
            seen.append(threads)
            return sum(range(200 * threads))

        return call

    before = torch.get_num_threads()
    found = race({"one": contender}, [1, 2], seconds=0.01)
    assert found["one"].threads == 1
    assert found["one"].runs >= 5
    assert set(seen) == {1, 2}
    assert torch.get_num_threads() == before


def flushed() -> list[bool]:
    """Of the products of tiny numbers by this thread and by torch's other threads, which are 0."""
    return (torch.full((1_000_000,), 1e-30) * 1e-10 == 0).unflatten(0, (2, -1)).all(1).tolist()


def test_flushing_reaches_every_thread_of_its_own_process_and_none_of_this_one():
    with Flushing() as flushing:
        assert flushing.works
        assert flushing.process.submit(flushed).result() == [True, True]
        case = cpu.Case("training", 2, **TINY)
        found = race(flushing.contenders(case), [1, 2], seconds=0.01)
    assert set(found) == {"glstm, flushing", "nn.LSTM, flushing", "eager gated loop, flushing"}
    assert all(timing.runs >= 5 for timing in found.values())
    torch.set_num_threads(2)
    assert flushed() == [False, False]


def test_a_ratio_compares_what_had_the_same_conditions():
    seconds = {"glstm": 2.0, "nn.LSTM": 6.0, "eager gated loop": 4.0, "glstm, flushing": 1.0, "nn.LSTM, flushing": 5.0}
    timings = {name: Timing(value, 1, 5) for name, value in seconds.items()}
    result = cpu.Result(cpu.Case("training", 2), timings)
    assert result.ratio("nn.LSTM, flushing") == 5
    assert (result.best_ratio(), result.best_ratio(flushing=True)) == (2, 5)
    assert cpu.Result(result.case, {"glstm": timings["glstm"]}).best_ratio(flushing=True) is None
    assert "| 2,000 ms / 1,000 ms | 6,000 ms / 5,000 ms |  | 4,000 ms | **2.0 / 5.0** |" in table([result.as_json()])[2]


def test_the_whole_benchmark_in_a_tiny_form(tmp_path, monkeypatch):
    def tiny(kind, **options):
        return cpu.Case(kind, 2, **{**TINY, **options})

    threads = iter([cpu.thread_counts()])  # for the first; then one: on a busy machine threads wait for each other
    monkeypatch.setattr(cpu, "thread_counts", lambda: next(threads, [1]))
    monkeypatch.setattr(cpu, "PROMISES", (tiny("inference", asked=0.001), tiny("training", openness=0.3)))
    monkeypatch.setattr(cpu, "SIZES", ((6, 3, 2, 4),))
    monkeypatch.setattr(cpu, "KINDS", (tiny("inference", openness=0.3),))
    monkeypatch.setattr(cpu, "CURVES", {"openness": (0.1, 1.0), "steps": (6, 12), "hidden": (3, 5)})
    out, picture = tmp_path / "new" / "cpu.json", tmp_path / "cpu.png"
    result = CliRunner().invoke(
        app, ["bench", "cpu", "--seconds", "0.01", "--out", str(out), "--picture", str(picture)]
    )
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert [row["kind"] for row in found["results"][:2]] == ["inference", "training"]
    assert [(row["steps"], row["batch"], row["inputs"], row["hidden"]) for row in found["results"][2:]] == 4 * [
        (6, 3, 2, 4)
    ]
    flushing = {"nn.LSTM, flushing", "eager gated loop, flushing"}
    assert set(found["results"][0]["ratios"]) == {"nn.LSTM", "ONNX Runtime", "eager gated loop"} | flushing
    assert processor() in result.output.replace("\n", " ")
    lines = out.with_suffix(".md").read_text().splitlines()
    assert lines == table(found["results"])
    assert len(lines) == 2 + 6
    assert len(found["curves"]) == 6
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_choice_is_measured(monkeypatch):
    monkeypatch.setattr(
        choice, "cases", lambda: iter([cpu.Case("training", 2, 0.3, **TINY), cpu.Case("inference", 2, 0.3, **TINY)])
    )
    result = CliRunner().invoke(app, ["bench", "choice", "--seconds", "0.01", "--all"])
    assert result.exit_code == 0, result.output
    assert "choices" in result.output


def test_the_gpu_benchmark_says_where_it_can_run(tmp_path, monkeypatch):
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="needs a CUDA device"):
            app(["bench", "gpu"], standalone_mode=False)
        return
    monkeypatch.setattr(gpu, "CASES", (gpu.Case(8, 4, steps=12), gpu.Case(8, 4, steps=12, models=2)))
    out = tmp_path / "gpu.json"
    result = CliRunner().invoke(app, ["bench", "gpu", "--runs", "3", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [row["models"] for row in json.loads(out.read_text())["results"]] == [0, 2]


def test_the_documents_show_the_figures_of_the_benchmarks():
    root = Path(__file__).parents[2]
    figures = json.loads((root / "benchmarks" / "cpu.json").read_text())["results"]
    assert "\n".join(table(figures)) in (root / "docs" / "cpu.md").read_text()
    figures = json.loads((root / "benchmarks" / "gpu.json").read_text())["results"]
    assert "\n".join(gpu_table(figures)) in (root / "docs" / "gpu-kernel.md").read_text()


def test_a_row_of_the_gpus_table():
    seconds = {gpu.LAYER: 0.002, gpu.CUDNN: 0.01, gpu.OPERATOR: 0.0015}
    made = gpu_table([{"name": "H = 3", "seconds": seconds, "ratios": {gpu.CUDNN: 5.0}, "gigabytes": 0.12}])
    assert cells_of(made[0])[1] == "GLSTM"
    assert cells_of(made[2]) == ["H = 3", "2 ms", "", "10 ms", "", "", "1.5 ms", "", "5.0", "", "0.12"]

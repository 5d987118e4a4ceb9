"""The page in a real browser says what Python says, at every place of the slider."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import glstm
from chromium import OpenPage, chromium
from glstm import GLSTM, LSTM, Clockwork, GatedLSTM, Periodic, Phased, SequenceModel
from glstm.cli.main import app
from glstm.data import Batch, Task
from glstm.data.images import PixelTask
from glstm.errors import UserError
from glstm.explore.gather import Shown, gather
from glstm.explore.ladder import MEASURED, positions
from glstm.explore.page import page
from glstm.gates import Gate
from glstm.training.evaluate import cost, error_sums, mean_cost, threshold_at
from small_runs import SMALL, start

CLASSES = ("late", "early <b>")


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def gestures(lengths=range(20, 32), own_times: bool = False) -> Task:
    """Two inputs, unequal lengths, two classes with names, a validation part."""
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 2)).astype(np.float32) * 3 + 5 for n in lengths for _ in range(4)]
    y = np.array([CLASSES[int(one[4:9, 0].mean() > 5)] for one in x])
    times = [np.sort(rng.uniform(0, 30, len(one))) for one in x] if own_times else None
    return Task.from_arrays(x, y, times=times, validation=0.3, test=0.2)


def explored(folder: Path, *arguments) -> Path:
    path = folder / "page.html"
    done = CliRunner().invoke(app, ["explore", *map(str, arguments), "--static", str(path)])
    assert done.exit_code == 0, done.exception
    return path


def written(path: Path, *networks: Shown) -> Path:
    path.write_text(page(gather(networks, sequences=8)))
    return path


def near(thresholds: list[float], *wanted: float) -> list[int]:
    return [thresholds.index(one) for one in wanted]


def say(model: SequenceModel, x, times=None) -> np.ndarray:
    with torch.no_grad():
        return model(x[:, None], None if times is None else times[:, None])[..., 0, :].double().numpy()


def check_answers(shown: OpenPage, models: list[SequenceModel], batch: Batch, number: int) -> None:
    """The page's outputs at the last step of a sample."""
    length = len(batch.x) if batch.lengths is None else int(batch.lengths[number])
    times = None if batch.times is None else batch.times[:length, number]
    for model, found in zip(models, shown.answers(), strict=True):
        expected = say(model, batch.x[:length, number], times)
        expected = expected[-1] if model.reads == "every" else expected
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_a_run_on_own_data(browser, tmp_path):
    """Sequences of unequal lengths: costs are means over the validation part, and errors are those measured on it."""
    task = gestures()
    trained = glstm.train(task, tmp_path / "run", units=7, layers=2, epochs=2, seed=1)
    model, layer = trained.model, trained.model.layer
    path = explored(tmp_path, tmp_path / "run")
    thresholds = positions([layer.threshold])
    found = Batch(*task.validation_samples(slice(0, 200)))
    labels = found.y.tolist()
    shown = OpenPage(browser, path)
    assert "late" in shown.text("#sample")
    assert "early <b>" in shown.text(".answer")
    for position in [*near(thresholds, 0.0, 1e-5, 0.01, 0.3), 37, len(thresholds) - 1]:
        shown.move("threshold", position)
        (figures,) = shown.figures()
        with threshold_at(layer, thresholds[position]):
            price = mean_cost(layer, task, "validation")
            assert float(figures["open"]) == pytest.approx(price.open_share, rel=1e-12)
            assert float(figures["operations"]) == pytest.approx(price.cached_ops, rel=1e-12)
            for sample, number in enumerate((labels.index(0), labels.index(1))):
                shown.choose_sample(sample)
                check_answers(shown, [model], found, number)
            if thresholds[position] not in MEASURED:
                assert figures["error"] == ""
                continue
            wrong = (model(found.x, lengths=found.lengths).argmax(-1) != found.y).double().mean().item()
            assert float(figures["error"]) == pytest.approx(wrong, abs=1e-12)
    shown.move("threshold", thresholds.index(0.01))
    assert "measured on 14 validation sequences" in shown.text(".figures")
    assert shown.page.locator("#curves svg").count() == 3
    shown.page.select_option("select[aria-label^='Which layer']", "1")
    shown.settle()
    shown.check_quiet()


def test_an_lstm_beside_a_gated_network(browser, tmp_path):
    """Every unit open, whatever the threshold is."""
    gated, plain = tmp_path / "gated", tmp_path / "plain"
    for path, recipe in ((gated, SMALL), (plain, SMALL.changed(cell="lstm"))):
        trainer = start(recipe, path)
        trainer.fit()
        trainer.finish()
    models = [SequenceModel.from_pretrained(path) for path in (gated, plain)]
    task = trainer.task
    shown = OpenPage(browser, explored(tmp_path, gated, plain))
    assert shown.text("h1") == "gated and plain"
    for position in near(positions(), 0.0, 0.1, 0.5):
        limit = positions()[position]
        shown.move("threshold", position)
        shown.choose_sample(2)
        ours, its = shown.figures()
        for model in models:
            model.layer.threshold = limit
        price = cost(models[0].layer, task.steps)
        assert float(ours["operations"]) == price.cached_ops
        assert float(ours["open"]) == pytest.approx(price.open_share, rel=1e-12)
        assert float(ours["mse"]) == pytest.approx(float(error_sums(models[0], task)[1]) / 30, rel=1e-6)
        assert float(its["open"]) == 1
        assert float(its["operations"]) == price.lstm_ops
        check_answers(shown, models, Batch(*task.test_samples(slice(0, 12))), 2)
    shown.check_quiet()


def test_512_units_and_10000_steps(browser, tmp_path):
    """However large the network is, no more is drawn than the screen has pixels, and numbers stay exact."""
    torch.manual_seed(0)
    layer = GLSTM(1, 512, mu=(1, 10_000), sigma=(20, 300))
    SequenceModel(layer, nn.Linear(512, 3)).save_pretrained(tmp_path / "large")
    path = explored(tmp_path, tmp_path / "large", "--steps", 10_000)
    assert path.stat().st_size < 8e6
    shown = OpenPage(browser, path, width=390, scale=2)
    assert "--test" in shown.text(".run .note")
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    for position in near(positions(), 0.01, 0.7):
        shown.move("threshold", position)
        layer.threshold = positions()[position]
        price = cost(layer, 10_000)
        (figures,) = shown.figures()
        assert float(figures["operations"]) == price.cached_ops
        assert float(figures["open"]) == pytest.approx(price.open_share, rel=1e-12)
    drawn = shown.page.eval_on_selector(".gates", "(c) => [Number(c.dataset.cells), c.width * c.height]")
    assert 0 < drawn[0] <= drawn[1] < 512 * 10_000 / 4
    shown.check_quiet()


def test_a_run_of_512_units(browser, tmp_path):
    """A trained one: its error and its answers, too."""
    task = gestures([200, 200, 200])
    trained = glstm.train(task, tmp_path / "run", units=512, epochs=1, gate={"sigma": 25.0})
    model, layer = trained.model, trained.model.layer
    shown = OpenPage(browser, explored(tmp_path, tmp_path / "run"))
    found = Batch(*task.validation_samples(slice(0, 200)))
    labels = found.y.tolist()
    for sample, position in enumerate(near(positions([layer.threshold]), 0.0, 0.2)):
        shown.move("threshold", position)
        shown.choose_sample(sample)
        with threshold_at(layer, positions([layer.threshold])[position]):
            price = cost(layer, 200)
            (figures,) = shown.figures()
            assert float(figures["operations"]) == price.cached_ops
            assert float(figures["open"]) == pytest.approx(price.open_share, rel=1e-12)
            wrong = (model(found.x).argmax(-1) != found.y).double().mean().item()
            assert float(figures["error"]) == pytest.approx(wrong, abs=1e-12)
            check_answers(shown, [model], found, labels.index(sample))
    shown.check_quiet()


class Ramp(Gate):
    """Of somebody else: opens more and more from a moment on. It has no pulses."""

    names = ("since",)
    in_time = moments = ("since",)

    def draw(self, name, hidden_size, values=None):
        return torch.linspace(0, 20, hidden_size, dtype=torch.float64)

    def openness(self, times, unit, training):
        return ((times.unsqueeze(-1) - unit["since"]) / 15).clamp(0, 1)


def network(layer, reads="last", head=None, outputs=2) -> SequenceModel:
    width = layer.hidden_size * layer.num_directions
    return SequenceModel(layer, head or nn.Linear(width, outputs), reads=reads, classes=CLASSES).eval()


def every_kind() -> dict[str, SequenceModel]:
    torch.manual_seed(1)
    activations = [nn.GELU(), nn.LeakyReLU(0.2), nn.SiLU(), nn.LayerNorm(9), nn.Tanh(), nn.Sigmoid(), nn.GELU("tanh")]
    layers = [nn.LayerNorm(8), nn.Linear(8, 9), *activations, nn.Dropout(0.3), nn.Linear(9, 2), nn.LogSoftmax(-1)]
    wide = {"mu": (1, 30), "sigma": 6.0}
    return {
        "both ways": network(GLSTM(2, 5, num_layers=2, bidirectional=True, **wide)),
        "periodic": network(GatedLSTM(2, 6, gate=Periodic(mu=(0, 9), sigma=2.0, tau=(7, 11))), "mean"),
        "phased": network(GatedLSTM(2, 6, gate=Phased(tau=(5.0, 9.0), s=(0.0, 5.0), r=0.4)), "max"),
        "clockwork": network(GatedLSTM(2, 6, gate=Clockwork(period=(1, 2, 4)), candidate="sigmoid")),
        "of somebody else": network(GatedLSTM(2, 6, gate=Ramp())),
        "deep head": network(GLSTM(2, 8, **wide), head=nn.Sequential(*layers)),
        "softmax": network(GLSTM(2, 6, bias=False, **wide), head=nn.Sequential(nn.Linear(6, 2), nn.Softmax(-1))),
        "open": network(LSTM(2, 6), head=nn.Sequential(nn.ReLU(), nn.Linear(6, 2))),
    }


@pytest.mark.parametrize("own_times", [False, True])
def test_every_gate_and_head(own_times, browser, tmp_path):
    task = gestures(range(30, 32) if own_times else [30, 30, 30], own_times)
    kinds = every_kind()
    at: int | torch.Tensor = task.grid() if own_times else task.steps
    found = Batch(*task.validation_samples(slice(0, 200)))
    labels = found.y.tolist()
    thresholds = positions([0.0])
    for some in (list(kinds)[:4], list(kinds)[4:]):
        models = [kinds[name] for name in some]
        path = written(tmp_path / "page.html", *(Shown(name, kinds[name], task, at) for name in some))
        shown = OpenPage(browser, path)
        for sample, position in enumerate(near(thresholds, 0.0, 0.2)):
            shown.move("threshold", position)
            shown.choose_sample(sample)
            for model in models:
                model.layer.threshold = thresholds[position]
            check_answers(shown, models, found, labels.index(sample))
            if not own_times:
                for model, figures in zip(models, shown.figures(), strict=True):
                    price = cost(model.layer, 30)
                    always = not model.layer.gate.names
                    assert float(figures["operations"]) == (price.lstm_ops if always else price.cached_ops)
                    assert float(figures["open"]) == pytest.approx(price.open_share, rel=1e-12)
        shown.check_quiet()


def test_values_with_missing_inputs_beside_classes_of_steps(browser, tmp_path):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(20, 15, 2)) * 4 + 30
    holes = np.where(rng.random(x.shape) < 0.2, np.nan, x)
    values = Task.from_arrays(holes, x[:, :4].sum(1) * [1, 100], missing="mask", test=0.5, validation=0)
    steps = Task.from_arrays(x, np.where(x[..., 0] > 30, "up", "down"), test=0.5, validation=0)
    scaled = {"inputs": values.make_inputs(), "outputs": values.make_outputs()}
    models = [
        SequenceModel(GLSTM(4, 5, mu=(1, 15), sigma=4.0), nn.Linear(5, 2), **scaled).eval(),
        network(GLSTM(2, 5, mu=(1, 15), sigma=4.0), "every"),
    ]
    shown = [Shown(name, model, task, 15) for name, model, task in zip("ab", models, (values, steps), strict=True)]
    opened = OpenPage(browser, written(tmp_path / "page.html", *shown))
    opened.move("threshold", 0)
    opened.choose_sample(1)
    for task, model, found in zip((values, steps), models, opened.answers(), strict=True):
        batch = Batch(*task.test_samples(slice(0, 2)))
        expected = say(model, batch.x[:, 1])
        expected = expected[-1] if model.reads == "every" else expected
        np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert "value 2" in opened.text(".answer")
    assert "test sequences" in opened.text(".figures")
    opened.check_quiet()


def test_by_keyboard_and_for_screen_readers(browser, tmp_path):
    from axe_playwright_python.sync_playwright import Axe

    torch.manual_seed(0)
    model = network(GLSTM(2, 6, mu=(1, 30), sigma=6.0))
    path = written(tmp_path / "page.html", Shown("small", model, gestures([30, 30, 30]), 30))
    for dark in (False, True):
        shown = OpenPage(browser, path, dark=dark)
        shown.page.click("summary")
        found = Axe().run(shown.page)
        assert found.response["violations"] == [], found.generate_report()
    shown.page.focus("#threshold")
    before = shown.figures()
    for _ in range(12):
        shown.page.keyboard.press("ArrowRight")
    shown.settle()
    assert shown.figures() != before
    said = shown.page.get_attribute("#threshold", "aria-valuetext")
    assert said.startswith(f"{shown.text('#threshold-value')}; open ")
    shown.page.keyboard.press("Tab")
    shown.page.keyboard.press("Enter")  # the first measured threshold
    shown.settle()
    assert shown.text("#threshold-value") == "0"
    shown.page.focus("#unit0")
    shown.page.keyboard.press("Home")
    shown.settle()
    first = int(model.layer.mu_l0.argmin())
    assert shown.page.get_attribute("#unit0", "aria-valuetext").startswith(f"Unit 1 of 6 by moment (number {first})")
    shown.page.hover(".gates", position={"x": 50, "y": 149})
    shown.settle()
    assert shown.text(".unit-text").startswith("Unit 6 of 6")
    shown.page.focus("#play")
    shown.page.keyboard.press("Enter")
    assert shown.page.get_attribute("#play", "aria-label") == "Pause"
    shown.page.wait_for_function("() => document.getElementById('step-value').textContent.startsWith('2')")
    shown.check_quiet()


def test_the_unit_that_is_shown_first_has_a_window_and_widths_are_magnitudes(browser, tmp_path):
    """An optimiser may move sigma through 0: only its magnitude matters."""
    layer = GLSTM(2, 5, mu=torch.tensor([3.0, 9, 15, 21, 27]), sigma=torch.tensor([4.0, 4, 0.01, 4, 4]))
    with torch.no_grad():
        layer.get_parameter("sigma_l0")[1] = -4.0
        layer.get_parameter("mu_l0")[2] = 15.5  # between two steps: closed at both
    shown = OpenPage(browser, written(tmp_path / "page.html", Shown("small", network(layer), gestures([30]), 30)))
    assert shown.text(".unit-text").startswith("Unit 2 of 5 by moment (number 1): open from step")
    assert "mu 9, sigma 4." in shown.text(".unit-text")
    assert "sigma=0.01..4" in repr(layer)


class Shuffled(PixelTask):
    """Images of 5 x 5 pixels, which are read in another order."""

    in_order = False
    outputs = 2

    def artifacts(self) -> dict[str, object]:
        return {"permutation.json": {"order": [*range(24, -1, -1)]}}


def test_pixels_are_drawn_where_they_are_in_the_image(browser, tmp_path):
    images = torch.zeros(4, 25, 1, dtype=torch.uint8)
    images[:, [0, 24]] = 255  # the first and the last that are read: the last pixel of the image and the first
    labels = torch.tensor([0, 1, 0, 1])
    task = Shuffled("dots", (images, labels), (images, labels))
    model = network(GLSTM(1, 3, mu=(1, 25), sigma=9.0))
    shown = OpenPage(browser, written(tmp_path / "page.html", Shown("dots", model, task, 25)))
    shown.move("step", 10)
    bright = """(canvas) => {
        const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const middle = (n) => Math.round(((n + 0.5) * width) / 5);
        const value = (row, column) => data[4 * (middle(row) * width + middle(column))];
        return [value(0, 0), value(0, 4), value(4, 0), value(4, 4)];
    }"""
    first, *dark, last = shown.page.eval_on_selector(".image", bright)
    assert last > 250  # read
    assert 60 < first < 120  # not yet
    assert max(dark) < 60
    shown.choose_sample(1)
    check_answers(shown, [model], Batch(*task.test_samples(slice(0, 4))), 1)
    shown.check_quiet()


def test_a_cell_without_gates_has_a_page_without_gates(browser, tmp_path):
    model = SequenceModel(nn.GRU(2, 4), nn.Linear(4, 2), classes=CLASSES)
    path = written(tmp_path / "page.html", Shown("gru", model, gestures([30, 30]), 30))
    shown = OpenPage(browser, path)
    assert "this is a GRU: it has no gates to show" in shown.text(".run .note")
    assert shown.page.locator(".gates").count() == 0
    assert set(shown.figures()[0]) == {"operations", "error"}
    shown.check_quiet()


def test_torchs_own_lstm_is_run_as_ours():
    model = SequenceModel(nn.LSTM(2, 4, num_layers=2, bidirectional=True), nn.Linear(8, 2), classes=CLASSES).eval()
    shown = Shown("torch's", model, None, 9)
    x = torch.randn(9, 3, 2)
    torch.testing.assert_close(shown.model(x), model(x))
    (made,) = gather([shown])["runs"]
    assert made["layer"]["always_open"]
    assert len(made["network"]["layers"]) == 4


def test_a_page_that_no_browser_could_hold_is_refused():
    model = network(GLSTM(2, 400, mu=(1, 9), sigma=2.0))
    with pytest.raises(
        UserError, match="wide has 400 units at 100,000 steps, and a page shows up to 100,000 steps, and"
    ):
        gather([Shown("wide", model, None, 100_000)])


def test_the_page_needs_nothing_and_hides_nothing(tmp_path):
    """Names from data cannot become elements, and no address is in the page."""
    model = network(GLSTM(2, 3, mu=(1, 9), sigma=2.0))
    made = page(gather([Shown("</script><b>", model, gestures([9, 9, 9]), 9)], sequences=4))
    assert made.count("</script>") == 2
    assert "early <b>" not in made
    assert "https:" not in made
    assert "default-src 'none'" in made.replace("&#x27;", "'")
    data = json.loads(made.partition('id="data">')[2].partition("</script>")[0])
    assert data["runs"][0]["name"] == "</script><b>"

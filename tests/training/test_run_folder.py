"""Run folders and checkpoints: whole, or one clear sentence."""

import json

import pytest
import torch

from glstm.data import Batch
from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.pretrained import serialized
from glstm.recipes import Recipe, make_model, make_task
from glstm.training.checkpoint import checkpoint, load_checkpoint, read_extra
from glstm.training.evaluate import cost, error_sums, predict_with, sums_of, threshold_at
from glstm.training.run import RunFolder, runs_in

RECIPE = Recipe("adding", data={"steps": 30, "test_size": 50}, units=8, gate={"mu": (1.0, 30.0), "sigma": 5.0},
                options={"threshold": 0.02})  # fmt: skip
TASK = make_task(RECIPE)


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    model = make_model(RECIPE, TASK)
    run.create(RECIPE, TASK, model, {"device": "cpu"}, RECIPE.names_as_dict())
    run.model.write_bytes(serialized(model.state_dict()))
    return run


def test_a_model_folder_loads_the_network_it_describes(folder):
    torch.manual_seed(5)
    model = make_model(RECIPE, TASK)
    folder.model.write_bytes(serialized(model.state_dict()))
    loaded = folder.load_model()
    again = SequenceModel.from_pretrained(folder.path)  # a run folder is a model folder
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    assert not loaded.training
    x = torch.randn(30, 4, 2)
    assert torch.equal(loaded(x), model.eval()(x))
    assert loaded.layer.threshold == 0.02
    assert Recipe.from_dict({**folder.recipe(), **folder.settings().settings_as_dict()}) == RECIPE


def test_a_used_folder_is_left_alone(folder):
    before = folder.config.read_bytes()
    with pytest.raises(UserError, match="already holds a run: go on with it by --resume"):
        folder.create(RECIPE.changed(units=9), TASK, make_model(RECIPE, TASK), {})
    assert folder.config.read_bytes() == before


def test_what_is_not_a_run_is_said_so(tmp_path, folder):
    with pytest.raises(UserError, match="nothing is not there; a run is a folder that glstm train made"):
        RunFolder(tmp_path / "nothing").settings()
    folder.config.write_text("{half")
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        folder.settings()
    folder.config.write_text('{"format": 99}')
    with pytest.raises(UserError, match="not of this version of glstm: it should say format 2, and says 99"):
        folder.settings()
    folder.config.write_text('{"format": 2}')
    with pytest.raises(UserError, match="is not whole: it has no settings"):
        folder.settings()
    folder.config.write_text("[1, 2]")
    with pytest.raises(UserError, match="should be one JSON object"):
        folder.settings()


def test_a_broken_or_foreign_network_file_is_said_so(folder):
    whole = folder.model.read_bytes()
    for broken in (whole[:-10], b"", b"\xff" * 100, whole[:20]):
        folder.model.write_bytes(broken)
        with pytest.raises(UserError, match=r"model\.safetensors cannot be read as safetensors"):
            folder.load_model()
    folder.model.unlink()
    with pytest.raises(UserError, match=r"there is no model\.safetensors in"):
        folder.load_model()
    folder.model.write_bytes(serialized(make_model(RECIPE.changed(units=9), TASK).state_dict()))
    with pytest.raises(UserError, match=r"does not fit the network that config\.json beside it describes"):
        folder.load_model()


def test_a_checkpoint_restores_everything(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    model = make_model(RECIPE, TASK)
    progress = {"epoch": 3, "batch": 7, "seconds": 0.1 + 0.2, "history": [], "losses": []}
    state = {"mean": torch.randn(7), "square": torch.rand(7)}
    path.write_bytes(checkpoint(model, state, {"sums": torch.tensor([1.5], dtype=torch.float64)}, progress))

    other, fresh = make_model(RECIPE, TASK), {name: torch.zeros(7) for name in state}
    extra, restored = load_checkpoint(path, other, fresh)
    assert restored == progress
    assert extra["sums"].tolist() == read_extra(path)["sums"].tolist() == [1.5]
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    assert all(torch.equal(fresh[name], value) for name, value in state.items())


def test_a_model_file_is_no_checkpoint(folder):
    with pytest.raises(UserError, match="is not a checkpoint of this version"):
        load_checkpoint(folder.model, make_model(RECIPE, TASK), {})


def test_a_run_of_another_version_is_refused_in_a_sentence(folder):
    old = json.loads(folder.config.read_text()) | {"format": 1, "recipe": {"task": "adding", "mu": [1, 30]}}
    folder.config.write_text(json.dumps(old))
    for read in (folder.settings, folder.load_model, folder.steps):
        with pytest.raises(UserError, match="not of this version of glstm: it should say format 2, and says 1"):
            read()


def test_a_run_begun_with_objects_says_where_it_can_go_on(tmp_path):
    run = RunFolder(tmp_path / "objects")
    run.create(RECIPE, TASK, make_model(RECIPE, TASK), {})
    with pytest.raises(UserError, match=r"was begun from Python .* use it there"):
        run.recipe()


def test_runs_are_found_in_a_folder_of_folders(folder, tmp_path):
    for seed in (10, 9):
        run = RunFolder(tmp_path / "many" / f"seed{seed}")
        run.create(RECIPE.changed(seed=seed), TASK, make_model(RECIPE, TASK), {})
    (tmp_path / "many" / "notes").mkdir()
    assert [run.path.name for run in runs_in(tmp_path / "many")] == ["seed9", "seed10"]
    assert [run.path for run in runs_in(folder.path)] == [folder.path]


def test_cost_follows_the_threshold():
    layer = make_model(RECIPE.changed(layers=2), TASK).layer
    assert cost(layer, 30).lstm_ops == 30 * 8 * (8 * 2 + 8 * 8 + 29) + 30 * 8 * (8 * 8 + 8 * 8 + 29)
    with threshold_at(layer, 0.0):
        all_open = cost(layer, 30)
    with threshold_at(layer, 0.5):
        few = cost(layer, 30)
    assert layer.threshold == 0.02
    assert few.open_share < cost(layer, 30).open_share < all_open.open_share
    assert few.cached_ops < few.paper_ops < few.lstm_ops


def test_errors_are_sums_over_the_whole_test_set_whoever_computes_them():
    task, model = TASK, make_model(RECIPE, TASK)
    loss, error = error_sums(model, task, 16)
    assert model.training
    whole = Batch(*task.test_samples(slice(0, task.test_size)))
    halves = [whole.share(rank, 2, per_step=False) for rank in (0, 1)]
    with torch.no_grad():
        sums = [task.errors(model(half.x), half.y).double().sum() for half in halves]
    assert float(sum(sums)) == pytest.approx(float(error), rel=1e-6)
    assert float(sums_of(predict_with(model), task, 7)[1]) == pytest.approx(float(error), rel=1e-6)
    assert float(loss) == pytest.approx(float(error))


def test_config_says_what_a_model_needs(folder):
    config = json.loads(folder.config.read_text())
    assert config["task"] == {"name": "adding", "steps": 30, "inputs": 2, "outputs": 1}
    assert set(config["software"]) == {"glstm", "torch", "python"}


def test_config_says_what_a_report_needs(folder):
    about = json.loads(folder.config.read_text())["about"]
    assert about["parameters"] == sum(one.numel() for one in folder.load_model().parameters())
    assert about["begun_on"] == "CPU, 1 thread"
    assert (about["metric"], about["as_percent"]) == ("mse", False)
    assert set(about["sequences"]) == {"train", "validation", "test"}

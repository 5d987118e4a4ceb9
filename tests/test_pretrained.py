"""Model folders: what is saved is what is loaded, and no file can do more than not fit."""

import json
import pickle
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import glstm
from glstm import GLSTM, LSTM, PLSTM, Clockwork, GatedLSTM, Periodic, SequenceModel
from glstm.errors import UserError
from glstm.models import deep_head

HEAD = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 2))
MODELS = {
    "g-LSTM": lambda: SequenceModel(GLSTM(2, 5, 2, threshold=0.02, candidate="sigmoid"), nn.Linear(5, 3)),
    "both directions": lambda: SequenceModel(GLSTM(2, 5, bidirectional=True, bias=False), nn.Linear(10, 3, bias=False)),
    "Phased LSTM": lambda: SequenceModel(PLSTM(1, 4, alpha=0.2, batch_first=True), deep_head(4, 10, width=6)),
    "comes back": lambda: SequenceModel(GatedLSTM(2, 4, 2, gate=Periodic(), threshold=0.02), nn.Linear(4, 3)),
    "comes back soon": lambda: SequenceModel(GatedLSTM(2, 4, gate=Periodic(mu=(1, 5), tau=5.0)), nn.Linear(4, 3)),
    "LSTM": lambda: SequenceModel(LSTM(1, 4), nn.Sequential(nn.Linear(4, 2))),
    "clocks": lambda: SequenceModel(GatedLSTM(1, 6, gate=Clockwork((1, 3))), HEAD),
    "float64": lambda: SequenceModel(GLSTM(1, 4), nn.Linear(4, 1)).double(),
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_saved_is_what_is_loaded(kind, tmp_path):
    model = MODELS[kind]().eval()
    model.save_pretrained(tmp_path / "model")
    before = torch.random.get_rng_state()
    loaded = SequenceModel.from_pretrained(tmp_path / "model")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not loaded.training
    assert type(loaded.layer) is type(model.layer)
    assert repr(loaded.head) == repr(model.head)
    x = torch.rand(9, 3, model.layer.input_size, dtype=next(model.parameters()).dtype)
    x = x.transpose(0, 1) if model.layer.batch_first else x
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    for train in (True, False):
        assert torch.equal(loaded.train(train).layer.openness(9), model.train(train).layer.openness(9))


class Doubled(nn.Linear):
    """Made with something that it does not keep."""

    def __init__(self, width: int):
        super().__init__(width, 2 * width)


def test_what_cannot_be_made_again_is_refused(tmp_path):
    class Odd(glstm.Gate):
        def openness(self, times, unit, training):
            return torch.ones_like(times).unsqueeze(-1)

    for model, message in (
        (SequenceModel(GatedLSTM(1, 3, gate=Odd()), nn.Linear(3, 1)), "Odd cannot be imported by its name"),
        (SequenceModel(GLSTM(1, 3), Doubled(3)), "made with 'width', and keeps no attribute of that name"),
        (SequenceModel(GLSTM(1, 3), nn.Linear(3, 1).double()), "all its values have one floating type"),
    ):
        with pytest.raises(UserError, match=message):
            model.save_pretrained(tmp_path / "odd")
    assert not (tmp_path / "odd" / "config.json").exists()


HEADS = [nn.Tanh(), nn.GELU("tanh"), nn.SiLU(), nn.Softmax(-1), nn.LayerNorm(4, eps=1e-3), nn.Dropout(0.2), nn.ELU(0.7)]


@pytest.mark.parametrize("part", HEADS, ids=lambda part: type(part).__name__)
def test_any_part_of_torchs_own_makes_a_head(part, tmp_path):
    model = SequenceModel(GLSTM(1, 4), nn.Sequential(nn.Linear(4, 4), part, nn.Linear(4, 2))).eval()
    model.save_pretrained(tmp_path / "model")
    loaded = SequenceModel.from_pretrained(tmp_path / "model")
    assert repr(loaded.head) == repr(model.head)
    x = torch.rand(5, 3, 1)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


@pytest.fixture
def folder(tmp_path):
    MODELS["g-LSTM"]().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


LARGE = {"input_size": 20_000_000, "hidden_size": 8}  # nothing of that size is made to see that it does not fit


def changed(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.update(format=1), "not of this version of glstm: it should say format 2, and says 1"),
        (lambda c: c.pop("model"), "does not describe a model"),
        (lambda c: c["model"].pop("layer"), "describes no network that can be built: TypeError"),
        (lambda c: c["model"].pop("class"), "describes no network that can be built: KeyError"),
        (lambda c: c["model"]["layer"].update(gate="Gate"), "describes no network"),
        (lambda c: c["model"]["layer"]["gate"].update({"class": "glstm:Gate"}), "describes no network"),
        (lambda c: c["model"]["layer"]["gate"].update({"class": "os:system"}), "describes no network"),
        (lambda c: c["model"]["layer"].update({"class": "os:system"}), "describes no network"),
        (lambda c: c["model"]["layer"].update({"class": "nowhere.at.all:Layer"}), "describes no network"),
        (lambda c: c["model"]["layer"].update({"class": "..:Layer"}), "describes no network"),
        (lambda c: c["model"].update({"class": "torch.nn:Linear"}), "describes no network"),
        (lambda c: c["model"]["layer"].update(hidden_size=-3), "describes no network"),
        (lambda c: c["model"]["layer"].update(hidden_size=10**9), "describes no network"),
        (lambda c: c["model"]["layer"].update(hidden_size="os.system('true')"), "describes no network"),
        (lambda c: c["model"]["layer"].update(surprise=1), "describes no network"),
        (lambda c: c["model"]["layer"].update(device="meta"), "describes no network"),
        (lambda c: c["model"]["layer"].update(num_layers=10**6), "describes no network"),
        (lambda c: c["model"]["layer"].update(bias="yes"), "describes no network"),
        (lambda c: c["model"].update(dtype="complex64"), "describes no network"),
        (lambda c: c["model"].update(dtype="float64"), "does not fit the network that config.json"),
        (lambda c: c["model"]["head"].update(out_features=10**8), "does not fit the network that config.json"),
        (lambda c: c["model"].update(dtype="load"), "describes no network"),
        (lambda c: c["model"]["head"].update(out_features=10**18), "describes no network"),
        (
            lambda c: c["model"].update(head={"class": "torch.nn:Sequential", "parts": [{"class": "Bomb"}]}),
            "describes no",
        ),
        (lambda c: c["model"]["layer"].update(input_size=7), "does not fit the network that config.json"),
        (lambda c: c["model"]["layer"].update(hidden_size=6), "describes no network.* but the layer gives 6"),
        (lambda c: c["model"].update(inputs="text"), "describes no network.* inputs must be a module, not 'text'"),
        (lambda c: c["model"].update(head=None), "describes no network.* head must be a module, not None"),
        (lambda c: c["model"]["layer"].update(input_size=True), "describes no network.* input_size must be a whole"),
        (lambda c: c["model"]["layer"].update(num_layers=201), "describes no network.* 200 is the most"),
        (lambda c: c.update(model={"dtype": "float32", "class": "torch.nn:GRU", "input_size": 2, "hidden_size": 4,
                                   "num_layers": True}), "describes no network.* num_layers must be of type int"),
        (lambda c: c["model"].update(layer=LARGE | {"class": "glstm.cells.tcn:TCN"}), "does not fit the network"),
        (lambda c: c["model"].update(layer=LARGE | {"class": "glstm.cells.clockwork:Clockwork"}),
         "describes no network.* input_size is 20000000, and the file of its weights holds [0-9]+ numbers"),
    ],
)  # fmt: skip
def test_a_config_that_does_not_fit_is_named(folder, change, says):
    changed(folder, change)
    began = time.process_time()
    with pytest.raises(UserError, match=says):
        SequenceModel.from_pretrained(folder)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", "[" * 100_000, '{"format": ' + "9" * 5000 + "}"])
def test_a_broken_config_is_named(folder, text):
    (folder / "config.json").write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=r"config.json (cannot be read|holds no description)"):
        SequenceModel.from_pretrained(folder)


class Bomb:
    def __reduce__(self):
        return print, ("a file ran code",)


def test_broken_and_hostile_weights_are_named_and_run_nothing(folder, capsys):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole[:50], b"\xff" * 8 + whole[8:], pickle.dumps(Bomb()), whole[:8] + b"{}" * 90):
        path.write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as safetensors"):
            SequenceModel.from_pretrained(folder)
    assert capsys.readouterr().out == ""
    save_file({"layer.weight_hh_l0": torch.zeros(3)}, path)
    with pytest.raises(UserError, match="does not fit the network"):
        SequenceModel.from_pretrained(folder)
    path.unlink()
    with pytest.raises(UserError, match=r"there is no model.safetensors in"):
        SequenceModel.from_pretrained(folder)
    with pytest.raises(UserError, match=r"is not a model folder: there is no config.json"):
        SequenceModel.from_pretrained(folder / "elsewhere")


def test_what_is_refused_leaves_what_was_there(folder, tmp_path):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError, match="keeps no attribute of that name"):
        SequenceModel(GLSTM(1, 3), Doubled(3)).save_pretrained(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    changed(folder, lambda config: config.update(settings={}))  # as a run's has
    with pytest.raises(UserError, match="holds a run, and is a model folder already"):
        MODELS["g-LSTM"]().save_pretrained(folder)


def test_a_fresh_process_loads_it(folder):
    code = f"from glstm import SequenceModel; print(SequenceModel.from_pretrained({str(folder)!r}).layer.hidden_size)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "5\n"

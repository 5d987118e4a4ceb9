"""`torch.onnx.export` of modules that contain the layers, by both of its exporters, in ONNX Runtime beside PyTorch."""

import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.export import Dim

import glstm
from glstm.errors import UserError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning"),  # these are torch's own
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:# The axis name:UserWarning"),
]

STEPS = 400
START = 1.7e9  # seconds since 1970: 32 bits do not hold them


class Several(nn.Module):
    """Layers of several kinds: with times that are given, or part of the module, or only counted."""

    late: torch.Tensor

    def __init__(self):
        super().__init__()
        self.carried = glstm.GLSTM(3, 5, mu=(START, START + 40), sigma=20.0)
        self.phased = glstm.PLSTM(3, 5, bias=False, tau=(8.3, 25.0), s=(0.0, 20.0), r=0.4, candidate="sigmoid")
        self.register_buffer("late", 1e6 + torch.linspace(0, 100, STEPS))  # a remainder of these must be exact
        self.plain = glstm.LSTM(3, 4, 2, bidirectional=True)
        self.logistic = glstm.LSTM(3, 5, candidate="sigmoid", bias=False)

    def forward(self, x, times, h, c):
        outputs, (h_n, c_n) = self.carried(x, (h, c), times)
        return (
            outputs,
            h_n,
            c_n,
            self.phased(x, None, self.late[: x.shape[0]])[0],
            *self.plain(x)[1],
            self.logistic(x, (h, c))[0],
        )


class More(Several):
    """As above, and others; an export by `torch.export` takes seconds for each direction with a gate."""

    def __init__(self):
        super().__init__()
        self.stack = glstm.GLSTM(3, 4, 2, bidirectional=True, batch_first=True, mu=(1, 40), sigma=9.0, threshold=0.05)
        self.clocks = glstm.GatedLSTM(3, 6, gate=glstm.Clockwork((1, 2, 4.3)))
        self.wide = glstm.GLSTM(3, 4, mu=(1, 40), sigma=9.0, dtype=torch.float64)

    def forward(self, x, times, h, c):
        since = times - START
        own = since.unsqueeze(1) + x[:, :, 0].abs() / 100
        others = self.clocks(x, None, own)[0], self.wide(x.double(), None, since)[0]
        return *super().forward(x, times, h, c), self.stack(x.transpose(0, 1))[0], *others


def inputs(steps: int, batch: int) -> tuple[torch.Tensor, ...]:
    times = START + (0.2 + torch.rand(steps, dtype=torch.float64)).cumsum(0)
    return torch.randn(steps, batch, 3), times, torch.randn(1, batch, 5), torch.randn(1, batch, 5)


NAMES = ["x", "times", "h", "c"]
AXES = ({0: "steps", 1: "batch"}, {0: "steps"}, {1: "batch"}, {1: "batch"})


def export(model: nn.Module, given: tuple, names: list[str], axes: tuple, path, dynamo: bool, opset=None) -> None:
    """As people do it."""
    options = {"input_names": names, "opset_version": opset, "dynamo": dynamo}
    if dynamo:
        sizes = {"steps": Dim("steps", max=STEPS), "batch": Dim("batch")}
        shapes = tuple({axis: sizes[name] for axis, name in one.items()} for one in axes)
        torch.onnx.export(model, given, path, dynamic_shapes=shapes, verbose=False, **options)
    else:
        torch.onnx.export(model, given, path, dynamic_axes=dict(zip(names, axes, strict=True)), **options)


def session(path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(running: onnxruntime.InferenceSession, *arguments: torch.Tensor) -> list[torch.Tensor]:
    names = [value.name for value in running.get_inputs()]
    found = running.run(None, {name: value.numpy() for name, value in zip(names, arguments, strict=True)})
    return [torch.from_numpy(one) for one in found]


def assert_same(found, expected) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() < 1e-5


@pytest.mark.parametrize(("dynamo", "module", "opset"), [(True, Several, 20), (False, More, 15)], ids=["new", "old"])
@torch.no_grad()
def test_any_module_at_any_length_and_batch(dynamo, module, opset, tmp_path):
    torch.manual_seed(0)
    model, path = module().eval(), tmp_path / "several.onnx"
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.uniform_(parameter, -0.9, 0.9)  # large enough for every path to matter
    export(model, inputs(7, 4), NAMES, AXES, path, dynamo, opset)
    written = onnx.load(path)
    onnx.checker.check_model(written, full_check=True)
    assert {one.domain: one.version for one in written.opset_import}[""] == opset
    operators = [node.op_type for node in written.graph.node]
    assert operators.count("LSTM") == 5  # every layer and direction without a gate
    running = session(path)
    assert running.get_inputs()[0].shape == ["steps", "batch", 3]
    for steps, batch in ((1, 1), (20, 6), (STEPS, 2)):
        given = inputs(steps, batch)
        assert_same(run(running, *given), model(*given))
    # A stream with gaps that nobody knows before: step by step, with the state given back.
    x, times, h, c = inputs(60, 1)
    expected, state = model.carried(x, (h, c), times)
    for n in range(len(x)):
        y, h, c, *_ = run(running, x[n : n + 1], times[n : n + 1], h, c)
        assert_same(y, expected[n : n + 1])
    assert_same((h, c), state)


@torch.no_grad()
def test_a_layer_alone(tmp_path):
    layer, path = glstm.GLSTM(3, 4, mu=(1, 10), sigma=9.0).eval(), tmp_path / "layer.onnx"
    export(layer, (torch.randn(7, 2, 3), {"sequence": False}), ["x"], AXES[:1], path, dynamo=False)
    x = torch.randn(9, 3, 3)
    assert_same(run(session(path), x), layer(x)[1])


@torch.no_grad()
def test_lengths_are_an_input(tmp_path):
    layer = glstm.GLSTM(3, 4, bidirectional=True, batch_first=True, mu=(1, 10), sigma=9.0)
    model, path = glstm.SequenceModel(layer, nn.Linear(8, 2), reads="mean").eval(), tmp_path / "lengths.onnx"
    given = torch.randn(4, 7, 3), torch.rand(4, 7).cumsum(1), torch.tensor([7, 1, 3, 5])
    axes = ({0: "batch", 1: "steps"}, {0: "batch", 1: "steps"}, {0: "batch"})
    export(model, given, ["x", "times", "lengths"], axes, path, dynamo=False)
    program = torch.export.export(model, given, dynamic_shapes=tuple(dict.fromkeys(one, Dim.DYNAMIC) for one in axes))
    running = session(path)
    for lengths in ([9, 2], [1, 1, 20]):
        steps, batch = max(lengths), len(lengths)
        other = torch.randn(batch, steps, 3), torch.rand(batch, steps).cumsum(1), torch.tensor(lengths)
        assert_same(run(running, *other), [model(*other)])
        assert_same([program.module()(*other)], [model(*other)])


@torch.no_grad()
def test_a_program_without_our_operator(tmp_path):
    """It runs where this package is not, and its own file goes to ONNX, too."""
    model, path = glstm.GLSTM(3, 5, mu=(1, 10), sigma=4.0).eval(), tmp_path / "program.onnx"
    shapes = {"input": {0: Dim("steps"), 1: Dim("batch")}, "hx": None, "times": {0: Dim("steps")}}
    given = {"times": torch.rand(7).cumsum(0)}
    program = torch.export.export(model, (torch.randn(7, 4, 3), None), given, dynamic_shapes=shapes)
    plain = glstm.portable(program)
    assert "glstm" in str(program.graph)
    assert "glstm" not in str(plain.graph)
    torch.onnx.export(plain, f=path, verbose=False)
    running = session(path)
    for steps, batch in ((1, 1), (30, 2)):
        x, times = torch.randn(steps, batch, 3), torch.rand(steps).cumsum(0)
        output, state = model(x, None, times)
        found, found_state = plain.module()(x, None, times=times)
        assert_same((found, *found_state), (output, *state))
        assert_same(run(running, x, times), (output, *state))


class Packing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = glstm.GLSTM(3, 5, mu=(1, 10), sigma=4.0)

    def forward(self, x, lengths):
        return self.layer(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))[1]


REFUSED = {
    "takes no PackedSequence": (Packing, (torch.randn(7, 2, 3), torch.tensor([7, 3]))),
    "has not seen any times yet": (lambda: glstm.GLSTM(3, 5), (torch.randn(7, 2, 3),)),
    "GRNN is a loop in Python": (lambda: glstm.GRNN(3, 5), (torch.randn(7, 2, 3),)),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_cannot_be_exported_says_so(sentence, tmp_path):
    make, given = REFUSED[sentence]
    with pytest.raises(UserError, match=sentence):
        torch.onnx.export(make().eval(), given, tmp_path / "refused.onnx", dynamo=False)
    assert not list(tmp_path.iterdir())


def test_only_a_program_is_made_portable():
    with pytest.raises(UserError, match=r"portable takes what torch.export.export returns, not GLSTM"):
        glstm.portable(glstm.GLSTM(3, 5))

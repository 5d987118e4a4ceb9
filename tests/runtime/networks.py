"""Networks of every kind that can be deployed, small ones."""

import torch

from glstm import GLSTM, LSTM, PLSTM, Clockwork, GatedLSTM, Periodic, SequenceModel
from glstm.models import deep_head, linear_head
from glstm.scaling import Rescale, Standardize

STEPS = 60
SHARES = torch.tensor([0.2] * 10 + [1.3, -0.2, 2.5])  # the last as an optimiser may leave them, beyond 0 and 1

KINDS = {
    "g-LSTM": lambda: GLSTM(1, 23, mu=(1, STEPS), sigma=4.0),
    "wide gates": lambda: GLSTM(2, 12, mu=(1, STEPS), sigma=(1.0, 30.0)),
    "stack": lambda: GLSTM(3, 11, 2, mu=(1, STEPS), sigma=3.0),
    "no bias": lambda: GLSTM(1, 9, bias=False, mu=(1, STEPS), sigma=4.0),
    "logistic": lambda: GLSTM(2, 9, mu=(1, STEPS), sigma=4.0, candidate="sigmoid"),
    "some never open": lambda: GLSTM(1, 16, mu=(-40, STEPS + 40), sigma=3.0),
    "Phased LSTM": lambda: PLSTM(1, 13, tau=(8.0, 25.0), s=(0.0, 20.0), r=SHARES),
    "stack of Phased LSTMs": lambda: PLSTM(2, 8, 3, tau=(8.0, 25.0), s=(0.0, 20.0), r=0.2),
    "gates that come back": lambda: GatedLSTM(1, 13, gate=Periodic(mu=(0.0, 20.0), sigma=1.5, tau=(8.0, 25.0))),
    "clocks": lambda: GatedLSTM(1, 10, gate=Clockwork((1, 2, 4, 8, 16))),
    "in half steps from -3": lambda: GLSTM(1, 9, mu=(1, STEPS), sigma=4.0, origin=-3.0, unit=0.5),
    "LSTM": lambda: LSTM(2, 9, 2),
}


def network(kind: str, head=linear_head, outputs: int = 3) -> SequenceModel:
    torch.manual_seed(0)
    layer = KINDS[kind]()
    for parameter in layer.parameters():
        if parameter.dim() == 2:
            torch.nn.init.uniform_(parameter, -0.9, 0.9)  # large enough for every path to matter
    return SequenceModel(layer, head(layer.hidden_size, outputs)).eval()


def deep_network(kind: str) -> SequenceModel:
    return network(kind, lambda hidden, outputs: deep_head(hidden, outputs, width=17))


def thresholded(model: SequenceModel, threshold: float, x, times=None):
    """What the model says with units at k <= threshold closed."""
    before, model.layer.threshold = model.layer.threshold, threshold
    try:
        with torch.no_grad():
            return model(x, times)
    finally:
        model.layer.threshold = before


MEANS, SCALES = torch.tensor([1e4, 5.0, -1e4]), torch.tensor([2.0, 1e-3, 0.05])  # of raw numbers
OUTPUT_MEANS, OUTPUT_SCALES = torch.tensor([2e4, 0.0, -3.0]), torch.tensor([50.0, 1e-6, 2.0])


def raw_network(missing="refuse", *, rescaled=False, layer=GLSTM, head=linear_head, **options) -> SequenceModel:
    """A network that takes raw numbers of three channels, far from 0 and of very different sizes."""
    torch.manual_seed(0)
    inputs, outputs = Standardize(3, missing), Rescale(3) if rescaled else None
    inputs.mean.copy_(MEANS)
    inputs.scale.copy_(SCALES)
    if outputs is not None:
        outputs.mean.copy_(OUTPUT_MEANS)
        outputs.scale.copy_(OUTPUT_SCALES)
    gates = {} if layer is LSTM else {"mu": (1, STEPS), "sigma": 6.0}
    batch_first = options.pop("batch_first", False)
    of = layer(inputs.outputs, 11, options.pop("layers", 2), batch_first=batch_first, **gates)
    for parameter in of.parameters():
        if parameter.dim() == 2:
            torch.nn.init.uniform_(parameter, -0.9, 0.9)
    return SequenceModel(of, head(11, 3), inputs=inputs, outputs=outputs, **options).eval()


def raw_sequences(missing="refuse", batch=4, steps=STEPS) -> torch.Tensor:
    """(T, B, 3), with gaps if there may be some: at the first step, long ones, and a channel that is never there."""
    draws = torch.Generator().manual_seed(5)
    x = torch.randn(steps, batch, 3, generator=draws) * SCALES + MEANS
    if missing != "refuse":
        x[torch.rand(x.shape, generator=draws) < 0.3] = torch.nan
        x[0, 0] = torch.nan
        x[10 : steps - 10, -1, 1] = torch.nan
        x[:, 1, 2] = torch.nan
    return x

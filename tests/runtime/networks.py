"""Networks of every kind that can be deployed, small ones."""

import torch

from glstm import GLSTM, LSTM, PLSTM, Clockwork, GatedLSTM, SequenceModel
from glstm.models import deep_head, linear_head

STEPS = 60

KINDS = {
    "g-LSTM": lambda: GLSTM(1, 23, mu=(1, STEPS), sigma=4.0),
    "wide gates": lambda: GLSTM(2, 12, mu=(1, STEPS), sigma=(1.0, 30.0)),
    "stack": lambda: GLSTM(3, 11, 2, mu=(1, STEPS), sigma=3.0),
    "no bias": lambda: GLSTM(1, 9, bias=False, mu=(1, STEPS), sigma=4.0),
    "logistic": lambda: GLSTM(2, 9, mu=(1, STEPS), sigma=4.0, candidate="sigmoid"),
    "some never open": lambda: GLSTM(1, 16, mu=(-40, STEPS + 40), sigma=3.0),
    "Phased LSTM": lambda: PLSTM(1, 13, tau=(8.0, 25.0), s=(0.0, 20.0), r=0.2),
    "stack of Phased LSTMs": lambda: PLSTM(2, 8, 3, tau=(8.0, 25.0), s=(0.0, 20.0), r=0.2),
    "clocks": lambda: GatedLSTM(1, 10, gate=Clockwork((1, 2, 4, 8, 16))),
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

"""Recurrent cells by name: modules with `torch.nn.LSTM`'s convention. To add one, write its file here and add a line.

A cell is made as cell(input_size, hidden_size, num_layers, **options). Called with x (T, B, D) it returns the output
(T, B, H) and its state, a tensor or a tuple of tensors whose first is h_n (layers, B, H). A cell that does not update
every unit at every step may set `share_of_updates`, a tensor with one number, when it is called in evaluation.
"""

from collections.abc import Callable

from torch import nn

from glstm.cells.clockwork import ClockworkRNN
from glstm.gated import GatedLSTM
from glstm.layers import GLSTM, LSTM, PLSTM

CELLS: dict[str, Callable[..., nn.Module]] = {
    "glstm": GLSTM,
    "plstm": PLSTM,
    "lstm": LSTM,
    "gated": GatedLSTM,  # with any gate
    "gru": nn.GRU,
    "clockwork": ClockworkRNN,
}

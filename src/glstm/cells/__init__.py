"""Recurrent cells by name: modules with `torch.nn.LSTM`'s convention. To add one, write its file here and add a line.

A cell is made as cell(input_size, hidden_size, num_layers, **options). Called with x (T, B, D) it returns the output
(T, B, H) and its state, a tensor or a tuple of tensors whose first is h_n (layers, B, H); `recurrent.py` has all that
but the equations. Some things more, if a cell has them:

- `share_of_updates`, None in the class, and a tensor with one number that it sets at each call: of all real steps,
  those at which it updates its state. In training it is differentiable, and a budget charges for it. Training and
  testing read it and set it back to None, because it may hold a graph. `skipping.py` has what goes with it.
- `extra_losses(losses, errors)`, called in training after a batch with each sample's loss and error; the errors are
  None in a task without classes. It returns what the cell wants to be added to the loss, as one number or one a sample.
- `recipe`, a dictionary: how its paper trains it on sequential MNIST, or on what is nearest to that, as values of
  `glstm.recipes.Recipe`; its docstring says which. It is the preset smnist-NAME.
- `own_start`, True for an LSTM that has one: a recipe does not change it.
- `leaves_out_sequence`, True if it takes sequence=False: the last state alone is wanted.
- `way`, a few words on how it is computed on CUDA, if it is not one fused kernel a step; `bench`, values of a recipe
  with which `glstm bench rivals` measures it, if they are not the usual ones.
"""

from collections.abc import Callable

from torch import nn

from glstm.cells.bn_lstm import BNLSTM
from glstm.cells.chrono import ChronoLSTM
from glstm.cells.clockwork import ClockworkRNN
from glstm.cells.gru import GRU
from glstm.cells.indrnn import IndRNN
from glstm.cells.jump import LSTMJump
from glstm.cells.mingru import MinGRU
from glstm.cells.r_lstm import RLSTM
from glstm.cells.skip import SkipGRU, SkipLSTM
from glstm.cells.tcn import TCN
from glstm.cells.zoneout import Zoneout
from glstm.gated import GatedLSTM
from glstm.layers import GLSTM, LSTM, PLSTM

CELLS: dict[str, Callable[..., nn.Module]] = {
    "glstm": GLSTM,
    "plstm": PLSTM,
    "lstm": LSTM,
    "gated": GatedLSTM,  # with any gate
    "gru": GRU,
    "clockwork": ClockworkRNN,
    "chrono-lstm": ChronoLSTM,
    "zoneout": Zoneout,
    "bn-lstm": BNLSTM,
    "r-lstm": RLSTM,
    "indrnn": IndRNN,
    "mingru": MinGRU,
    "tcn": TCN,
    "skip-lstm": SkipLSTM,
    "skip-gru": SkipGRU,
    "lstm-jump": LSTMJump,
}

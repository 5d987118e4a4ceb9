"""The operator `gated_lstm` and its backends. `README.md` has its equations; start reading at `operator.py`."""

from glstm.ops.backends import BACKENDS as BACKENDS
from glstm.ops.operator import Output as Output
from glstm.ops.operator import gated_lstm as gated_lstm
from glstm.ops.reference import CANDIDATES as CANDIDATES

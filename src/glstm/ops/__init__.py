"""The operators `gated_lstm` and `gated_gru`, and their backends. `README.md` has the equations; start reading at
`operator.py`.
"""

from glstm.ops.backends import BACKENDS as BACKENDS
from glstm.ops.gru import gated_gru as gated_gru
from glstm.ops.operator import Output as Output
from glstm.ops.operator import gated_lstm as gated_lstm
from glstm.ops.reference import CANDIDATES as CANDIDATES

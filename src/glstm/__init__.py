"""Time-gated recurrent networks: each unit of a g-LSTM opens only around a learned moment."""

from typing import TYPE_CHECKING, Any

from glstm.advice import check as check
from glstm.advice import parameter_groups as parameter_groups
from glstm.analysis import count_cached_ops as count_cached_ops
from glstm.analysis import count_ops as count_ops
from glstm.analysis import gradient_flow as gradient_flow
from glstm.convert import from_lstm as from_lstm
from glstm.convert import prune as prune
from glstm.convert import to_lstm as to_lstm
from glstm.errors import GateWarning as GateWarning
from glstm.errors import StreamWarning as StreamWarning
from glstm.gated import GatedLSTM as GatedLSTM
from glstm.gates import Clockwork as Clockwork
from glstm.gates import Gate as Gate
from glstm.gates import Gaussian as Gaussian
from glstm.gates import Open as Open
from glstm.gates import Periodic as Periodic
from glstm.gates import Phased as Phased
from glstm.layers import GLSTM as GLSTM
from glstm.layers import LSTM as LSTM
from glstm.layers import PLSTM as PLSTM
from glstm.layers import gate_parameters as gate_parameters
from glstm.layers import weight_parameters as weight_parameters
from glstm.models import SequenceModel as SequenceModel
from glstm.ops.portable import portable as portable
from glstm.quick import train as train
from glstm.rnn import GRNN as GRNN
from glstm.runtime import Runtime as Runtime
from glstm.runtime import deploy as deploy
from glstm.scaling import Rescale as Rescale
from glstm.scaling import Standardize as Standardize
from glstm.streaming import stream as stream
from glstm.training.budget import budget as budget
from glstm.training.curriculum import TemporalCurriculum as TemporalCurriculum

if TYPE_CHECKING:
    from glstm.estimators import SequenceClassifier as SequenceClassifier
    from glstm.estimators import SequenceRegressor as SequenceRegressor

__version__ = "0.1.0"

_LATER = {"SequenceClassifier": "glstm.estimators", "SequenceRegressor": "glstm.estimators"}


def __getattr__(name: str) -> Any:
    """Names that need an optional package are imported on first use."""
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Training: the budget loss, the temporal curriculum, populations, and the loop behind `glstm train`."""

from typing import TYPE_CHECKING, Any

from glstm.training.budget import budget as budget
from glstm.training.curriculum import TemporalCurriculum as TemporalCurriculum
from glstm.training.settings import Settings as Settings

if TYPE_CHECKING:
    from glstm.training.loop import Trainer as Trainer
    from glstm.training.population import Population as Population

_LATER = {"Population": "glstm.training.population", "Trainer": "glstm.training.loop"}


def __getattr__(name: str) -> Any:
    """Names that take long to import are imported on first use."""
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

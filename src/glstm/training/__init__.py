"""Training: the budget loss, the temporal curriculum, populations, and the loop behind `glstm train`."""

from glstm.training.budget import budget as budget
from glstm.training.curriculum import TemporalCurriculum as TemporalCurriculum
from glstm.training.population import Population as Population

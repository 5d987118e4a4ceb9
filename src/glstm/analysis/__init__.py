"""Analysis of networks: operation counts, energy, gradient flow."""

from glstm.analysis.gradient_flow import gradient_flow as gradient_flow
from glstm.analysis.operations import count_cached_ops as count_cached_ops
from glstm.analysis.operations import count_ops as count_ops
from glstm.analysis.operations import operations_of as operations_of

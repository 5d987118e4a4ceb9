"""Deployment of trained networks: a schedule, whole sequences, streams, C and ONNX."""

from glstm.runtime.runtime import Runtime as Runtime
from glstm.runtime.runtime import deploy as deploy
from glstm.runtime.stream import Stream as Stream

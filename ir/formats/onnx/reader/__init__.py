"""Reads a forward model in ONNX as a graph of MindSpore's primitives.

One file a family of operators; :mod:`.table` joins their rules. :mod:`.conversion` walks the model's nodes: what is
computed from constants alone is computed now, the rest becomes primitives as an export of MindSpore holds them.
"""

from .model import OpenSizes, read_onnx

__all__ = ["OpenSizes", "read_onnx"]

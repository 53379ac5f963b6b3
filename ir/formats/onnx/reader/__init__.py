"""Reads a forward model in ONNX as a graph of MindSpore's primitives: what is computed from constants alone is computed
now, the rest becomes primitives by the table of operators, as an export of MindSpore holds them."""

from .model import OpenSizes, read_onnx

__all__ = ["OpenSizes", "read_onnx"]

"""Writes the network of a program as a model of standard ONNX operators, which any ONNX runtime executes."""

from .model import export_onnx

__all__ = ["export_onnx"]

"""Dimension reduction training: the pass, its formulas, the basis it works in, and the graph of a trial."""

from .dim_reduce import DimReduce

__all__ = ["DimReduce"]

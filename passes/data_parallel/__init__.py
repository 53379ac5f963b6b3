"""Data parallelism: the pass, the gradients that it sums, their exchange, and how it takes its work out again."""

from .data_parallel import DataParallel

__all__ = ["DataParallel"]

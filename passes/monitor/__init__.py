"""Monitor: the pass, which decides and reports, and the measuring nodes in the graphs of a cycle."""

from .monitor import Monitor

__all__ = ["Monitor"]

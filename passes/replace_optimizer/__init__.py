"""Another optimizer in the place of the file's own: MindSpore's, or one of those that stand here."""

from .replace_optimizer import ReplaceOptimizer

__all__ = ["ReplaceOptimizer"]

"""A forward graph as Python source: a Cell for MindSpore. Nothing here imports MindSpore."""

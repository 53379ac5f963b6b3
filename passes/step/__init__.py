"""Shared parts of passes: the pieces of a training step, and the words for them."""

"""Rewrites of a graph before MindSpore compiles it: a file for each lowering, and the list of all."""
